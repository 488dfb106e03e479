"""Are the statistics right? Experiments whose answer is known, judged by the code of `compare`.

Where two models do not differ, a difference must be claimed as often as was said and no oftener;
intervals must hold the truth as often as they say, and a plan must find what it promises to find.
The experiments are simulated (`experiments`), declared with what must come out (`conditions.toml`),
done in chunks into a journal and held against the binomial interval of that (`run`).
"""
