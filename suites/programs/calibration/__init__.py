"""Is the measuring right? 200 comparisons whose answer is known, judged as `attnbench bench` does.

Equal work under two names must not be told apart; work made 10 % or 5 % longer must be found. What
is compared is declared (`plan`), timed in children by bench's own clock (`arms`), block by block
into a journal (`run`), judged by bench's own statistics (`score`) and printed (`__main__`).
"""
