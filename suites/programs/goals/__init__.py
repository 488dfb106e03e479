"""Are the goals of performance reached? Measured as `attnbench bench` measures, judged, printed.

What is wanted is data (`goals.toml`); a goal becomes cases (`plan`), which the harness' own
sessions measure; the bare core of attention is a mechanism of its own (`records`, `cores`,
`naive`). `judge` says met, missed or undecided of what the journal holds, `__main__` prints it.
"""
