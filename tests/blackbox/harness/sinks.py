"""Targets of outlets that fail as a test wants them to."""

import http.server
import json
import ssl
import threading


class HttpSink:
    """Context manager around an HTTP server that keeps what it acknowledges.

    `answers` are given in turn, then `answer`: a status, or a function of the body that gives one; with a pair, headers go along.
    `"reset"` closes the connection without an answer before the body is kept, `"late"` keeps the body first. `hold` cleared:
    nothing is answered until it is set. `together`: the most requests that have waited for an answer at the same time."""

    def __init__(self, authority=None, port=0, host="127.0.0.1"):
        self.answer = 200
        self.answers: list = []
        self.bodies: list[bytes] = []
        self.requests: list[tuple[str, str, dict, bytes]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.arrived = 0
        self.waiting = 0
        self.together = 0
        self.lock = threading.Lock()
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.send_response(200)
                self.end_headers()

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                sink.arrived += 1
                with sink.lock:
                    sink.waiting += 1
                    sink.together = max(sink.together, sink.waiting)
                sink.hold.wait()
                headers = {name.lower(): value for name, value in self.headers.items()}
                sink.requests.append((self.command, self.path, headers, body))
                answer = sink.answers.pop(0) if sink.answers else sink.answer
                if callable(answer):
                    answer = answer(body)
                status, extra = answer if isinstance(answer, tuple) else (answer, {})
                if status in (200, "late"):
                    sink.bodies.append(body)
                with sink.lock:
                    sink.waiting -= 1
                if isinstance(status, str):
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            do_PUT = do_POST

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, port), Handler)
        self.server.daemon_threads = True
        if authority:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*authority.issue("sink").files)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"{'https' if authority else 'http'}://{host}:{self.port}/in"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def lines(self) -> list[dict]:
        """The messages of bodies in lines that were acknowledged, or kept."""
        return [json.loads(line) for body in self.bodies for line in body.splitlines()]

    def texts(self) -> list[str]:
        return [line["text"] for line in self.lines()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()
