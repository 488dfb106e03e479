"""Cost against length."""
