"""What two pages or more need: sources, words, tables, figures, HTML."""
