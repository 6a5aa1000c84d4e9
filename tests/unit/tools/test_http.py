"""The http tool reaches what is allowed, at the address that was checked, and nothing else."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from agentrl_tools.errors import ServiceError
from agentrl_tools.hosts import canonical
from agentrl_tools.http import Gate, Http
from agentrl_tools.web import charset, decoded

from agentrl.env import BadCallError
from agentrl.errors import ConfigError
from tests.unit.tools.web import FLOOD, web

LOOPBACK = ("127.0.0.0/8",)


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with web() as running:
        yield running


def tool_for(server: ThreadingHTTPServer, **options: Any) -> tuple[Http, str]:
    place = f"localhost:{server.server_port}"
    options = {"allow": [place], "networks": LOOPBACK} | options
    return Http(**options), f"http://{place}"


async def test_an_allowed_host_answers_under_its_own_name(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    assert await tool.http(f"{home}/hello") == "200 OK\nhello"
    assert await tool.http(f"{home}/nowhere") == "404 Not Found\nno such page"
    assert server.seen[0] == (f"localhost:{server.server_port}", "/hello")  # type: ignore[attr-defined]


async def test_private_addresses_are_refused_unless_their_network_is_allowed(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server, networks=())
    with pytest.raises(BadCallError, match=r"localhost resolves to (127\.0\.0\.1|::1), which is not a public address"):
        await tool.http(f"{home}/hello")
    assert server.seen == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "http://localhost/",
        "http://localhost:1/",
        "http://127.0.0.1/",
        "http://localhost.evil.org/",
        "http://localhost@evil.org/",
        "ftp://localhost/",
        "file:///etc/passwd",
        "hello",
        "http://",
        "http://[::1",
        "http://" + "a" * 100_000,
        "",
    ],
)
async def test_other_hosts_ports_and_schemes_are_refused_without_a_connection(url: str) -> None:
    tool = Http(["localhost:8000", "*.example.com"], networks=LOOPBACK)
    with pytest.raises(BadCallError):
        await tool.http(url)


async def test_every_hop_of_a_redirect_is_checked(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    assert await tool.http(f"{home}/to?url=/hello") == "200 OK\nhello"
    with pytest.raises(BadCallError, match=r"127\.0\.0\.1:\d+ is not allowed"):
        await tool.http(f"{home}/to?url=http://127.0.0.1:{server.server_port}/hello")
    with pytest.raises(BadCallError, match="not allowed"):
        await tool.http(f"{home}/to?url=http://169.254.169.254/latest/meta-data")
    with pytest.raises(BadCallError, match=r"[Rr]edirect"):
        await tool.http(f"{home}/loop")
    assert len([path for _, path in server.seen if path == "/hello"]) == 1  # type: ignore[attr-defined]


async def test_the_body_of_a_redirect_is_not_read(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server, max_bytes=10_000)
    assert await tool.http(f"{home}/flood?url=/flood%3Furl=/hello") == "200 OK\nhello"
    assert server.sent < FLOOD // 2  # type: ignore[attr-defined]


async def test_a_redirect_drops_what_was_posted_unless_it_says_to_keep_it(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server, methods=("GET", "POST"))
    assert await tool.http(f"{home}/post/302?url=/hello", "POST", "hi") == "200 OK\nhello"
    assert await tool.http(f"{home}/post/307?url=/echo", "POST", "hi") == "200 OK\nhi"


async def test_the_connection_goes_to_the_address_that_was_checked(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public when it is checked, and private when it is looked up again, gains nothing."""
    asked = []

    async def resolve(self: Gate, host: str, port: int) -> list[Any]:
        asked.append(host)
        return [ipaddress.ip_address("127.0.0.1" if len(asked) == 1 else "10.0.0.1")]

    monkeypatch.setattr(Gate, "_resolve", resolve)
    tool = Http([f"rebinding.test:{server.server_port}"], networks=LOOPBACK)
    assert await tool.http(f"http://rebinding.test:{server.server_port}/hello") == "200 OK\nhello"
    assert asked == ["rebinding.test"]
    with pytest.raises(BadCallError, match=r"10\.0\.0\.1, which is not a public address"):
        await tool.http(f"http://rebinding.test:{server.server_port}/hello")


async def test_size_length_and_compression_are_bounded(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server, max_bytes=10_000, max_characters=3)
    with pytest.raises(BadCallError, match="more than 10000 bytes"):
        await tool.http(f"{home}/big")
    with pytest.raises(BadCallError, match="compressed"):
        await tool.http(f"{home}/gzip")
    assert await tool.http(f"{home}/hello") == "200 OK\nhel\n[2 more characters]"


async def test_methods_are_allowed_by_name(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    with pytest.raises(BadCallError, match="POST is not allowed; use GET"):
        await tool.http(f"{home}/echo", "POST", "hi")
    tool, home = tool_for(server, methods=("GET", "POST"))
    assert await tool.http(f"{home}/echo", "POST", "hi") == "200 OK\nhi"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/hang", "no answer within 1 s|Timeout"),
        ("/drip", "no answer within 1 s|Timeout"),
        ("/endless", "more than 10000 bytes"),
        ("/headers", "RemoteProtocolError"),
        ("/reset", "RemoteProtocolError"),
        ("/junk", "RemoteProtocolError"),
        ("/to?url=/hang", "/hang: (no answer within 1 s|.*Timeout)"),
    ],
)
async def test_a_path_that_fails_on_a_host_that_answers_is_the_models(
    server: ThreadingHTTPServer, path: str, expected: str, asked_again: None
) -> None:
    tool, home = tool_for(server, timeout_s=1.0 if "Timeout" in expected else 20.0, max_bytes=10_000)
    with pytest.raises(BadCallError, match=expected):
        await tool.http(home + path)


async def test_a_status_or_a_scheme_that_the_model_picks_does_not_end_its_episode(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    assert await tool.http(f"{home}/down") == "503 Service Unavailable\n"
    with pytest.raises(BadCallError, match="ConnectError"):
        await tool.http(home.replace("http:", "https:"))


async def always(answer: bytes) -> tuple[asyncio.Server, str]:
    """A host that says the same to everybody; nothing at all where that is empty."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        writer.write(answer)
        if not answer:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    return server, f"localhost:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 503 Gone\r\nContent-Length: 0\r\n\r\n", b"junk\r\n\r\n"])
async def test_a_host_that_answers_nobody_is_the_infrastructures_fault(answer: bytes) -> None:
    server, place = await always(answer)
    async with server:
        with pytest.raises(ServiceError) as caught:
            await Http([place], networks=LOOPBACK, timeout_s=0.3).http(f"http://{place}/page")
        if others := asyncio.all_tasks() - {asyncio.current_task()}:  # the host's own, which close their ends
            await asyncio.wait(others, timeout=20)
    assert caught.value.fault == "infra"


async def test_a_host_that_is_not_there_is_the_infrastructures_fault_unless_the_model_made_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def resolve(*_: object) -> list[Any]:
        raise httpx.ConnectError("nowhere has no address")

    with pytest.raises(ServiceError):
        await Http(["localhost:9"], networks=("127.0.0.0/8", "::1/128")).http("http://localhost:9/")
    monkeypatch.setattr(Gate, "_resolve", resolve)
    with pytest.raises(ServiceError, match="has no address"):
        await Http(["nowhere.invalid"]).http("http://nowhere.invalid/")
    with pytest.raises(BadCallError, match="has no address"):
        await Http(["*.invalid"]).http("http://nowhere.invalid/")
    known = {"*.invalid": "http://www.invalid/health"}
    with pytest.raises(ServiceError, match="has no address"):
        await Http(["*.invalid"], known_good=known).http("http://nowhere.invalid/")


async def test_the_author_may_name_the_known_good_address(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    place = home.removeprefix("http://")
    tool, home = tool_for(server, known_good={place: f"{home}/down"})
    with pytest.raises(ServiceError, match="503, and the known-good request fails too"):
        await tool.http(f"{home}/down")
    for bad in ({place: "http://evil.org/"}, {"evil.org": "http://evil.org/"}, {place: "http://[::1"}):
        with pytest.raises(ConfigError, match="known_good"):
            tool_for(server, known_good=bad)


async def test_many_failures_ask_for_the_known_good_once(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    assert set(await asyncio.gather(*(tool.http(f"{home}/down") for _ in range(20)))) == {"503 Service Unavailable\n"}
    assert [path for _, path in server.seen].count("/") == 1  # type: ignore[attr-defined]


async def test_a_text_is_decoded_by_the_charsets_that_take_linear_time(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    assert await tool.http(f"{home}/punycode") == "200 OK\na-b"
    assert await tool.http(f"{home}/kanji") == "200 OK\n\u6f22"
    for name in ("punycode", "idna", "utf-7", "unicode_escape", "rot13", "zlib", "nothing", "", "\0", "x" * 10_000):
        assert charset(f"text/html; charset={name}") == "utf-8"
    assert charset("text/html; charset*=punycode''x; charset=LATIN1; x=y") == "iso8859-1"
    assert "a" * 10 in decoded(b"a" * 10 + b"\xff", "")


async def test_a_long_address_is_refused_before_anything_reads_it() -> None:
    with pytest.raises(BadCallError, match="longer than 8192 characters"):
        await Http(["*.example.com"]).http("http://" + "a." * 100_000 + "example.com/")
    with pytest.raises(BadCallError, match="is not a valid host name"):
        await Http(["*.example.com"]).http("http://" + "a." * 1000 + "example.com/")


async def test_many_at_once(server: ThreadingHTTPServer) -> None:
    tool, home = tool_for(server)
    answers = await asyncio.gather(*(tool.http(f"{home}/hello") for _ in range(64)))
    assert answers == ["200 OK\nhello"] * 64


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("192.88.99.1", False),
        ("::ffff:192.88.99.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fc00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b:1::7f00:1", False),
        ("fec0::1", False),
        ("::127.0.0.1", False),
        ("::ffff:0:7f00:1", False),
    ],
)
def test_which_addresses_are_public(address: str, is_open: bool) -> None:
    assert Gate(["x"]).is_open(ipaddress.ip_address(address)) is is_open


def test_an_allowed_network_holds_in_both_spellings_of_an_address() -> None:
    gate = Gate(["x"], LOOPBACK)
    assert gate.is_open(ipaddress.ip_address("::ffff:127.0.0.1"))
    assert not gate.is_open(ipaddress.ip_address("::ffff:10.0.0.1"))


def test_a_tool_without_hosts_or_with_a_wrong_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="name the allowed hosts"):
        Http([])
    with pytest.raises(ConfigError, match=r"write for example 127\.0\.0\.0/8"):
        Http(["x"], networks=["loopback"])


def knows(monkeypatch: pytest.MonkeyPatch, *known: str) -> list[str]:
    """A resolver that has these names at loopback and no other, as /etc/hosts has; what it was asked for."""
    asked: list[str] = []

    async def resolve(self: Gate, host: str, port: int) -> list[Any]:
        asked.append(host)
        if host not in known:
            raise httpx.ConnectError(f"{host} has no address")
        return [ipaddress.ip_address("127.0.0.1")]

    monkeypatch.setattr(Gate, "_resolve", resolve)
    return asked


@pytest.mark.parametrize(
    "spelling",
    ["svc.", "SVC", "Svc.", "svc\u3002", "user:pass@svc", "user%40@SVC."],
)
async def test_an_allowed_host_is_asked_for_in_its_own_spelling(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    asked, port = knows(monkeypatch, "svc"), server.server_port
    tool = Http([f"SVC.:{port}"], networks=LOOPBACK)
    assert await tool.http(f"http://{spelling}:{port}/hello") == "200 OK\nhello"
    hop = quote(f"http://{spelling.encode('idna').decode()}:{port}/hello")
    assert await tool.http(f"http://svc:{port}/to?url={hop}") == "200 OK\nhello"
    assert {host for host, _ in server.seen} == {f"svc:{port}"}  # type: ignore[attr-defined]
    assert set(asked) == {"svc"}


@pytest.mark.parametrize(
    "url",
    [
        "http://svc...:80/", "http://svc..", "http://.svc", "http://svc%2e/", "http://%73vc/", "http://svc:0/",
        "http://svc:65536/", "http://[fe80::1%25lo]/", "http://[fe80::1%lo]/", "http://xn--/", "http://\uff53vc/",
        "http://a..svc/", "http://%00.svc/", "http://" + "a" * 64 + ".svc/", "http://svc:\u0660/",
    ],
)  # fmt: skip
async def test_what_is_no_name_of_a_host_is_the_models_and_nothing_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    asked = knows(monkeypatch)
    with pytest.raises(BadCallError):
        await Http(["svc", "*.svc", "fe80::1"], known_good={"*.svc": "http://www.svc/"}).http(url)
    assert asked == []


async def test_a_name_in_other_letters_is_looked_up_as_it_is_sent(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, port = knows(monkeypatch, "xn--fa-hia.de"), server.server_port
    tool = Http([f"fa\xdf.de:{port}"], networks=LOOPBACK)
    for spelling in ("fa\xdf.de", "FA\xdf.DE.", "xn--fa-hia.de", "XN--FA-HIA.de"):
        assert await tool.http(f"http://{spelling}:{port}/hello") == "200 OK\nhello"
    assert set(asked) == {"xn--fa-hia.de"}
    assert {host for host, _ in server.seen} == {f"xn--fa-hia.de:{port}"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("allowed", "url", "asked"),
    [
        ("svc:443", "https://svc/x", ["http://svc:443/", "https://svc/"]),
        ("svc:80", "http://svc:80/x", ["http://svc/", "https://svc:80/"]),
        ("svc", "https://SVC./x", ["http://svc/", "https://svc/"]),
        ("[0::1]:8000", "http://u@[::1]:8000/", ["http://[::1]:8000/", "https://[::1]:8000/"]),
        ("::1", "http://[0:0::1]/", ["http://[::1]/", "https://[::1]/"]),
    ],
)
def test_the_known_good_request_is_one_that_the_entry_allows(allowed: str, url: str, asked: list[str]) -> None:
    gate = Gate([allowed])
    assert list(map(str, gate.known_good_of(canonical(httpx.URL(url))))) == asked
    assert all(map(gate.entries, gate.known_good_of(httpx.URL(url))))


@pytest.mark.parametrize("entry", ["http://svc", "svc/path", "svc..", "", "svc:port", "user@svc", "*", "a b", "svc:0"])
def test_an_entry_that_no_address_can_match_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"allow: .* write a host"):
        Http([entry])
