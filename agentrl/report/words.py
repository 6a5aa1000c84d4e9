"""Text that a model or an environment wrote, made safe to print."""

from __future__ import annotations

# Control codes become their pictures: an escape sequence in a model's answer is shown, never obeyed by the terminal.
PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
PICTURES |= {127: 0x2421} | dict.fromkeys(range(128, 160), 65533)


def visible(text: str) -> str:
    """The text with every control code but tab and newline replaced by a sign for it."""
    return text.translate(PICTURES)
