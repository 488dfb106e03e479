"""What a trained model attends to."""
