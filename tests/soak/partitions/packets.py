"""IPv4 packets: who sent them to whom, and the TCP reset that answers one."""

from __future__ import annotations

import socket
import struct

PROTOCOL, TCP = 9, 6
"""The byte of a header that says what a packet carries, and its value for TCP."""

SYN, RST, ACK = 0x02, 0x04, 0x10


def addresses(packet: bytes) -> tuple[bytes, bytes]:
    """Of the sender and of the receiver, 4 bytes each."""
    return packet[12:16], packet[16:20]


def is_ipv4(packet: bytes) -> bool:
    return len(packet) >= 20 and packet[0] >> 4 == 4


def reset_of(packet: bytes) -> bytes | None:
    """The reset that a sender takes for one of its connection's other end. None if the packet is not TCP, or a reset itself.

    Ref: RFC 9293, section 3.5.2.
    """
    start = (packet[0] & 15) * 4
    if packet[PROTOCOL] != TCP or len(packet) < start + 20:
        return None
    source, target = addresses(packet)
    ports, sequence, acknowledged = packet[start : start + 4], *struct.unpack_from(">II", packet, start + 4)
    offset, flags = packet[start + 12] >> 4, packet[start + 13]
    if flags & RST:
        return None
    payload = len(packet) - start - offset * 4 + (1 if flags & SYN else 0)
    sequences = (acknowledged, 0, RST) if flags & ACK else (0, (sequence + payload) % 2**32, RST | ACK)
    tcp = struct.pack(">2s2sIIBBHHH", ports[2:], ports[:2], *sequences[:2], 5 << 4, sequences[2], 0, 0, 0)
    pseudo = target + source + struct.pack(">HH", TCP, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", _checksum(pseudo + tcp)) + tcp[18:]
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, TCP, 0, target, source)
    return header[:10] + struct.pack(">H", _checksum(header)) + header[12:] + tcp


def address_bytes(address: str) -> bytes:
    return socket.inet_aton(address)


def _checksum(data: bytes) -> int:
    """The Internet's, of an even number of bytes. Ref: RFC 1071."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
