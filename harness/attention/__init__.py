"""What a trained model attends to, reduced to a record; only `child` imports torch."""
