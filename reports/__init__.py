"""Tables, figures, sentences and the page, from records alone; torch is never imported."""
