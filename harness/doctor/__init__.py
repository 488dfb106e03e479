"""Whether this machine can measure: what is there, what is missing, what to do about it."""
