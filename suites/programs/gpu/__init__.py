"""Everything that only a GPU can tell, in parts that go on where they were: one small folder."""
