"""Line numbers of errors in a source."""

from __future__ import annotations


def last_line(error: BaseException, file: str) -> int:
    """Return the last line of this file in the traceback; 0 if there is none."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
