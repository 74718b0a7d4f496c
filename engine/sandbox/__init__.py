"""A reader's own attention, run apart from the app and compared with what is right.

``judge.check(code)`` does all of it. It is no security boundary: the code is the reader's own, on the
reader's own machine, and is kept from doing harm by accident.
"""

MEMORY_BYTES = 1_500_000_000  # that pasted code may have
