"""Limits on the size of answers and on the time that grading may take."""

MAX_SEARCHED_CHARS = 200_000
"""Only this many characters at the end of a response are searched for an answer."""
MAX_ANSWER_CHARS = 2_000
"""For comparison, the longest gold of MATH has 159 characters."""
MAX_WHOLE_CHARS = 200
"""Maximum length of a response that consists only of its answer."""
MAX_READ_CHARS = 256
"""A longer answer is parsed only by a worker, which can be killed, never in the calling process."""
MAX_PHRASE_CHARS = 120
"""A longer text is not a phrase or a quantity in parts."""
MAX_DEPTH = 40
MAX_ITEMS = 200
FAST_BITS = 4_096
"""Rationals up to this size are computed in the calling process, in microseconds."""
EXACT_BITS = 2_000_000
"""Rationals up to this size are exact in the worker; 2006! has 19,000 bits."""


class LimitError(ValueError):
    """The text is larger or more deeply nested than any real answer."""


MEMORY_BYTES = 2 << 30
"""Address space of a worker."""
COMPUTE_S = 2.0
"""Computing time of a call in workers: for the comparison and, if that is undecided, for the gold alone."""
GOLD_SHARE = 0.25
"""Share of COMPUTE_S that is reserved for the gold alone."""
PATIENCE = 3
"""Factor by which the time may grow if the worker gets less than half of a processor."""
QUEUE_S = 30.0
"""How long a comparison may wait for a worker."""
START_S = 60.0
"""How long a worker may take to start, including imports."""
