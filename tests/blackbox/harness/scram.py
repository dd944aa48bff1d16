"""The client's side of SCRAM (RFC 5802) without channel binding, by the standard library alone."""

import base64
import hashlib
import hmac
import os


class Scram:
    """One exchange: `first`, then `final(challenge)`, then `confirms(outcome)`."""

    def __init__(self, username: str, password: str, method="SCRAM-SHA-256"):
        self.digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[method]
        self.password = password.encode()
        self.nonce = base64.b64encode(os.urandom(18)).decode()
        self.bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"

    @property
    def first(self) -> bytes:
        return b"n,," + self.bare.encode()

    def final(self, challenge: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        assert fields["r"].startswith(self.nonce) and len(fields["r"]) > len(self.nonce)
        salt = base64.b64decode(fields["s"])
        salted = hashlib.pbkdf2_hmac(self.digest, self.password, salt, int(fields["i"]))
        client_key = self._mac(salted, b"Client Key")
        stored_key = hashlib.new(self.digest, client_key).digest()
        without_proof = f"c=biws,r={fields['r']}"
        signed = ",".join([self.bare, challenge.decode(), without_proof]).encode()
        signature = self._mac(stored_key, signed)
        self.expected = self._mac(self._mac(salted, b"Server Key"), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def confirms(self, outcome: bytes) -> bool:
        return outcome == b"v=" + base64.b64encode(self.expected)

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.digest)
