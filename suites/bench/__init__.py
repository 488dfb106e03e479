"""What it costs: measured in blocks, replayed through pytest-benchmark."""
