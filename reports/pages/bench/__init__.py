"""What a bench leaves behind to look at."""
