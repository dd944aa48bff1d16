"""An authority that issues certificates, good and bad ones, as files."""

import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def named(name) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class Leaf:
    """A certificate with its key: `cert` and `key` are paths of PEM files."""

    def __init__(self, cert: str, key: str, serial: int):
        self.cert, self.key, self.serial = cert, key, serial

    @property
    def files(self) -> tuple[str, str]:
        return self.cert, self.key


class Authority:
    """`path` is its own certificate."""

    def __init__(self, folder: pathlib.Path, name="authority"):
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            self._builder(named(name), self._key, ends=30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=True,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )
        self.path = self._write(f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject, key, ends) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now() - 10 * DAY)
            .not_valid_after(now() + ends)
        )

    def _write(self, name, data: bytes) -> str:
        path = self._folder / name
        path.write_bytes(data)
        return str(path)

    def issue(self, name, ends=30 * DAY, address="127.0.0.1") -> Leaf:
        """A certificate for localhost and an address, which serves clients as well."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address(address)),
        ]
        certificate = (
            self._builder(named(name), key, ends)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Leaf(
            self._write(f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{name}.key", pem),
            certificate.serial_number,
        )

    def revoke(self, *leaves: Leaf, next_update=30 * DAY) -> str:
        """A revocation list of these, to be replaced in so long, as the path of a PEM file."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(named(self._name))
            .last_update(now() - DAY)
            .next_update(now() + next_update)
            .add_extension(x509.CRLNumber(1), critical=False)
        )
        for leaf in leaves:
            revoked = x509.RevokedCertificateBuilder().serial_number(leaf.serial).revocation_date(now() - DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        signed = builder.sign(self._key, hashes.SHA256())
        return self._write(f"{self._name}.crl", signed.public_bytes(serialization.Encoding.PEM))
