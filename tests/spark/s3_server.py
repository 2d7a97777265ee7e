"""As much of Amazon's S3 as PyArrow needs: an object store in the memory of this process."""

from __future__ import annotations

import email.utils
import io
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass
class Bucket:
    """Keys with their bytes and when they were written, and the parts of what is being uploaded."""

    uri: str = ""
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = (data, time.time())


@contextmanager
def s3_server() -> Iterator[Bucket]:
    bucket = Bucket()
    handler = type("Handler", (_Handler,), {"bucket": bucket})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"127.0.0.1%3A{server.server_port}"
    bucket.uri = f"s3://key:secret@bucket/index?scheme=http&endpoint_override={endpoint}&region=x"
    yield bucket
    server.shutdown()
    thread.join()
    server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: Bucket

    def log_message(self, *words: object) -> None:
        pass

    def answer(self) -> None:
        url = urlsplit(self.path)
        _, _, key = unquote(url.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(url.query, True).items()}
        body = self._body()
        with self.bucket.lock:
            self._answer(key, query, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def _answer(self, key: str, query: dict[str, str], body: bytes) -> None:
        bucket, upload = self.bucket, query.get("uploadId")
        match self.command:
            case "POST" if "uploads" in query:
                upload = str(len(bucket.uploads))
                bucket.uploads[upload] = {}
                self._xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
            case "POST" if upload is not None:
                parts = bucket.uploads[upload]
                bucket.put(key, b"".join(parts[number] for number in sorted(parts)))
                self._xml("CompleteMultipartUploadResult", "<ETag>x</ETag>")
            case "PUT" if upload is not None:
                bucket.uploads[upload][int(query["partNumber"])] = body
                self._reply(200)
            case "PUT" if source := self.headers.get("x-amz-copy-source"):
                found = bucket.objects.get(unquote(source).lstrip("/").partition("/")[2])
                if found is None:
                    self._reply(404)
                else:
                    bucket.put(key, found[0])
                    self._xml("CopyObjectResult", "<ETag>x</ETag>")
            case "PUT":
                bucket.put(key, body)
                self._reply(200)
            case "DELETE":
                bucket.objects.pop(key, None)
                self._reply(204)
            case "GET" if "list-type" in query:
                self._list(query.get("prefix", ""), query.get("delimiter", ""))
            case "GET" | "HEAD" if not key or key in bucket.objects:
                data, written = bucket.objects.get(key, (b"", 0.0))
                date = email.utils.formatdate(written, usegmt=True)
                self._reply(200, data, {"Last-Modified": date, "ETag": '"x"'})
            case _:
                self._reply(404)

    def _list(self, prefix: str, delimiter: str) -> None:
        keys, folders = [], set()
        for key, (data, written) in sorted(self.bucket.objects.items()):
            if not key.startswith(prefix):
                continue
            inner, found, _ = key[len(prefix) :].partition(delimiter or "\0")
            if found:
                folders.add(prefix + inner + delimiter)
                continue
            date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written))
            keys.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size>"
                f"<LastModified>{date}</LastModified><ETag>x</ETag></Contents>"
            )
        prefixes = [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        ]
        count = f"<IsTruncated>false</IsTruncated><KeyCount>{len(keys) + len(prefixes)}</KeyCount>"
        self._xml("ListBucketResult", count + "".join(keys + prefixes))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = _joined(self.rfile)
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_signed = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return _joined(io.BytesIO(data)) if is_signed else data

    def _xml(self, name: str, inner: str) -> None:
        self._reply(200, f'<?xml version="1.0"?><{name}>{inner}</{name}>'.encode())

    def _reply(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        begin, end = 0, len(data)
        asked = self.headers.get("Range")
        if asked and self.command == "GET":
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(end, int(last) + 1 if last else end)
            status = 206
        self.send_response(status)
        for name, value in (headers or {"ETag": '"x"'}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[begin:end])


def _joined(source: IO[bytes]) -> bytes:
    """Of chunks: "<length in hex>;…", the bytes, an empty line; the last has the length 0."""
    chunks = []
    while length := int(source.readline().partition(b";")[0], 16):
        chunks.append(source.read(length))
        source.readline()
    while source.readline().strip():
        pass
    return b"".join(chunks)
