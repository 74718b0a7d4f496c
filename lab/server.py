"""What is served: the pages of app.py, to this machine's own hosts and to no other."""

from importlib import import_module
from threading import Thread

import streamlit as st
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed


class OwnHostsOnly:
    """Answers 403 to what was sent to another host's name, or by a page of another host.

    Else a web page whose name resolves to this machine would be of the same origin as the lab and could
    press its buttons, the code box's too. The hosts are ``server.allowedHosts``, which Streamlit itself asks
    for the WebSocket's Host alone: its files it gives to any, and an Origin it takes from any address of
    this machine, after asking an address outside for them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on what is ours."""
        if scope["type"] == "lifespan" or _is_ours(Headers(scope=scope)):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # before it is accepted: a 403
        else:
            await PlainTextResponse("The lab answers to its own hosts only.\n", 403)(scope, receive, send)


def _is_ours(headers: Headers) -> bool:
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    senders = [origin.partition("://")[2] for origin in origins]  # "null" has none
    return bool(hosts) and all(is_host_allowed(host) for host in [*hosts, *senders])


app = st.App("app.py", middleware=[Middleware(OwnHostsOnly)])
# What the first page imports, while the browser still loads Streamlit's own scripts.
Thread(target=import_module, args=("lab.sections.home.chart",), daemon=True).start()
