"""What a training run reads: corpora, their words, word vectors."""
