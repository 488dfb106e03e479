"""Models over corpora."""
