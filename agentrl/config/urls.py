"""URLs of servers that the user names."""

from __future__ import annotations


def has_credentials(text: str) -> bool:
    """Return whether a URL in the text has a user name or password."""
    _, *rests = text.split("://")
    authorities = (rest.partition("/")[0].partition("?")[0].partition("#")[0] for rest in rests)
    return any("@" in authority for authority in authorities)


def fault_of_urls(urls: str, secret: str) -> str:
    """Return why comma-separated URLs cannot be asked, "" if they can. `secret` is the key that takes credentials.

    The URLs of a run are stored with its configuration and its signals, so they contain no credentials.
    """
    if has_credentials(urls):
        return f"has a user name or password in its url, which the run would store: leave them out, and set {secret}"
    if not all(url.strip().startswith(("http://", "https://")) for url in urls.split(",")):
        return "has a url without http:// or https://; write for example http://127.0.0.1:5000"
    return ""
