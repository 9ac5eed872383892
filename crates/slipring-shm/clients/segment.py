#!/usr/bin/env python3
"""Looks at segments of slipring from Python: an observer, written from SEGMENT.md alone.

The program attaches to no segment: it maps read-only, takes no lock, and disturbs no process. It
needs Python 3.8 or later and 64-bit Linux, and no package.

    segment.py ls                        every segment in /dev/shm
    segment.py show NAME                 stages, positions, lag, participants
    segment.py events NAME               the published events that are still in the ring
    segment.py events NAME --follow      the same, and then each event that is published

NAME is the name of a segment, or a path with a slash. `--json` prints JSON, one object a line. It
ends with 1 if a segment or the output is refused, and with 2 if an argument is wrong.
"""

import argparse
import ctypes
import datetime
import errno
import fcntl
import functools
import json
import math
import mmap
import os
import platform
import re
import stat
import struct
import sys
import time
import zlib

MASK = (1 << 64) - 1
FOLDER, SUFFIX = "/dev/shm", ".slipring"
HEAD, STAGES_AT, SCHEMA_AT, LINE = 65536, 4096, 12288, 128
MAX_LENGTH, MAX_PARTICIPANTS = 1 << 40, 1024
F_OFD_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
FLOCK = "hhqqi4x"
TMPFS, EXT4 = 0x01021994, 0xEF53
DELIVERIES = ("each", "pool", "shards", "tap")
EACH, POOL, SHARDS, TAP = range(4)
ON_DEATH = ("wait", "tell", "fail", "close")
CLOSE = 3
ACCESS = ("reads", "writes")
CONTENTS = ("events", "messages", "blocks")
MESSAGES, PADDING = 1, 0xFFFFFFFF
CLOSED, HALTED, FAILED, CLOSING = 1, 2, 4, 8
CLAIM_LINE, SENTINEL_LINE, CURSOR_LINE = 0, 1, 2
IDLE = 1
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MAX_RUN, TOMBSTONE, LAP_SHIFT = 1 << 15, 1 << 16, 18
# Number of walks that producers overtake before an observer goes on without the published end.
WALKS = 8
# Steps of a proof that rest on the order of loads and of stores hold on this processor only. Python
# has no fence for others.
ORDERED = platform.machine() in ("x86_64", "AMD64")

HEADER = struct.Struct("=8sIIQQII16s16sQIIIIQQQII64sQQQQQIIQQIIQQQQQIIIIII")
HEADER_FIELDS = (
    "magic major minor order length checksum header_length id boot created uid features kind "
    "producers capacity first event_size event_align type_version type_name stamps_at "
    "stamps_stride events_at events_stride lines_at lines wait_queues wait_queues_at "
    "participants_at participants seats seats_at status_at counters_at cells_at shard_ids_at cells "
    "shard_ids notice_ms stages schema_length producer_on_death"
).split()
STAGE = struct.Struct("=48sBBBBIQIIIIIIII32x")
STAGE_FIELDS = (
    "name access delivery on_death flags room after line wait_queue first_seat seats cells "
    "shard_ids key_offset key_length"
).split()
PARTICIPANT = struct.Struct("=QIIQQQQ64s16x")
SEAT = struct.Struct("=10Q48x")


class Refused(Exception):
    """Why a file is not taken for a segment: what was wrong, and what to do."""


class Unwritten(Exception):
    """Why the output cannot be written."""


class Missing(Refused):
    """There is no such file, or it was removed since it was found."""


class Record:
    """Named fields of a table."""

    def __init__(self, names, values):
        self.__dict__.update(zip(names, values))


# Positions, which wrap.


def ahead(one, other):
    """Returns by how many events position `one` is ahead of `other`; negative: it is behind."""
    distance = (one - other) & MASK
    return distance - (1 << 64) if distance >> 63 else distance


def later(one, other):
    """Returns the later one of two positions."""
    return other if ahead(other, one) > 0 else one


def widen(low, bits, near):
    """Returns the position nearest to `near` whose low `bits` bits are `low`."""
    distance = (low - near) & ((1 << bits) - 1)
    if distance >> (bits - 1):
        distance -= 1 << bits
    return (near + distance) & MASK


def text(raw):
    """Returns the text before the first zero byte, without control characters."""
    clean = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return CONTROL.sub("\ufffd", clean)


def is_text(raw):
    """Returns whether bytes are a text filled up with zeros."""
    content, _, rest = raw.partition(b"\0")
    try:
        decoded = content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return bool(content) and not rest.strip(b"\0") and not CONTROL.search(decoded)


# Opening a file, and checking the head.


def path_of(name):
    """Returns the path of a segment."""
    if "/" in name:
        return name
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,47}", name):
        raise Refused("it is no name: take 1 to 48 letters, digits, `-`, `_`, `.`, or a path")
    return f"{FOLDER}/{name}{SUFFIX}"


def file_system(fd):
    """Returns the number of a file's file system. The standard library has no call for it."""
    found = (ctypes.c_long * 64)()
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, found) != 0:
        raise OSError(ctypes.get_errno(), "asking for the file system")
    return found[0]


def boot_id():
    """Returns the number of this boot; zeros: it is not known, because there is no /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def is_known(boot):
    """Returns whether the numbers of a segment's boot and of this one are known."""
    return any(boot) and any(boot_id())


def open_file(path):
    """Opens a file as an observer does, and checks it by its descriptor."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags)
    except OSError as error:
        kind = Missing if error.errno == errno.ENOENT else Refused
        raise kind(f"{error.strerror} ({path}): name another segment") from None
    try:
        found, ours = os.fstat(fd), os.geteuid()
        if not stat.S_ISREG(found.st_mode):
            raise Refused("it is no regular file: take another name")
        if file_system(fd) not in (TMPFS, EXT4):
            raise Refused(f"its file system is {file_system(fd):#x}: put it on tmpfs or ext4")
        if found.st_uid != ours:
            raise Refused(f"user {found.st_uid} owns it, and this process acts for user {ours}")
        if stat.S_IMODE(found.st_mode) & ~0o600:
            raise Refused(f"its mode is {stat.S_IMODE(found.st_mode):04o}: set it to 0600")
        if found.st_nlink == 0:
            raise Missing("it was removed: name another segment")
        if found.st_nlink != 1:
            raise Refused(f"it has {found.st_nlink} names, and a segment has one")
        if found.st_size < HEAD:
            raise Refused(f"it has {found.st_size} bytes, and a segment has at least {HEAD}")
    except BaseException:
        os.close(fd)
        raise
    return fd, found.st_size


def check_head(head, length):
    """Checks a copy of the head. Returns the header and the stages."""
    header = Record(HEADER_FIELDS, HEADER.unpack_from(head))
    h = header

    def need(right, what):
        if not right:
            raise Refused(f"its header is damaged: {what}; remove it and make it anew")

    def known(field, found, names):
        if found >= len(names):
            raise Refused(
                f"{field} is {found}, and this program knows 0 to {len(names) - 1}: "
                "look at it with a newer one, or make it anew"
            )

    if h.magic != b"SLIPRING":
        raise Refused(f"it begins with {h.magic!r} and not with SLIPRING: take another name")
    if h.order != 0x0102030405060708:
        raise Refused("a machine of another byte order made it")
    if h.major != 1:
        raise Refused(f"it has version {h.major}, and this program reads version 1")
    need(SCHEMA_AT <= h.header_length <= HEAD and h.header_length % 8 == 0, "its header length")
    checksum = zlib.crc32(head[36 : h.header_length], zlib.crc32(head[8:32]))
    need(checksum == h.checksum, f"its checksum is {checksum:#x}, and should be {h.checksum:#x}")
    if h.features:
        raise Refused(f"it uses unknown features ({h.features:#x})")
    if is_known(h.boot) and h.boot != boot_id():
        raise Refused("it was made before this machine was started last: remove it")
    if h.length != length:
        raise Refused(f"it has {length} bytes, and should have {h.length}")
    need(HEAD <= h.length <= MAX_LENGTH, "its length")
    known("its kind", h.kind, CONTENTS)
    known("its producer_on_death", h.producer_on_death, ON_DEATH)
    need(h.producers <= 64, "its number of producers")
    need(is_power(h.capacity) and h.capacity < MAX_LENGTH, "its capacity")
    need(is_power(h.event_align) and h.event_align <= 4096, "the alignment of its events")
    need(1 <= h.event_size < MAX_LENGTH and h.event_size % h.event_align == 0, "the event size")
    need(h.stages == 0 or h.lines > CURSOR_LINE, "its number of lines")
    need(1 <= h.participants <= MAX_PARTICIPANTS, "its number of participants")
    need(max(h.lines, h.wait_queues, h.seats) <= 65536, "its lines, wait queues or seats")
    need(max(h.stages, h.cells, h.shard_ids) <= 64, "its stages, cells or shard ids")
    need(h.schema_length <= HEAD - SCHEMA_AT, "the length of its schema")
    need(SCHEMA_AT + h.schema_length <= h.header_length, "the length of its schema")
    need(1 <= h.notice_ms <= 1000, "its notice")
    need(is_text(h.type_name), "the name of its event type")
    check_areas(h, need)
    stages = []
    for index in range(h.stages):
        stage = Record(STAGE_FIELDS, STAGE.unpack_from(head, STAGES_AT + index * 128))
        s, what = stage, f"stage {index}"
        need(is_text(s.name) and s.name not in [other.name for other in stages], f"name of {what}")
        known(f"the access of {what}", s.access, ACCESS)
        known(f"the delivery of {what}", s.delivery, DELIVERIES)
        known(f"the on_death of {what}", s.on_death, ON_DEATH[:CLOSE])
        known(f"the flags of {what}", s.flags, ("none",))
        need(1 <= s.room <= 64 and s.after >> index == 0, what)
        need(s.wait_queue < h.wait_queues and s.first_seat + s.seats <= h.seats, what)
        need(s.room == s.seats and s.line + line_count(s) <= h.lines, what)
        most = {EACH: 1, TAP: 64}.get(s.delivery, h.capacity)
        need(s.seats <= most, f"{what}, which has {s.seats} handles at {h.capacity} slots")
        need(s.cells <= h.cells and s.shard_ids <= h.shard_ids, what)
        need(s.key_offset + s.key_length <= h.event_size, what)
        stages.append(stage)
    return header, stages


def is_power(number):
    """Returns whether a number is a power of two."""
    return number > 0 and number & (number - 1) == 0


def check_areas(h, need):
    """Checks that each area lies in the file, and that no two overlap."""
    at = max(8, h.event_align)
    slot = (at + h.event_size + at - 1) // at * at
    inside = h.stamps_stride not in (0, 8)
    need(h.events_stride == (slot if inside else h.event_size), "the distance of its events")
    parties = h.stages + 1
    areas = [
        ("status", h.status_at, 4 * LINE, LINE),
        ("participants", h.participants_at, h.participants * LINE, LINE),
        ("seats", h.seats_at, h.seats * LINE, LINE),
        ("lines", h.lines_at, h.lines * LINE, LINE),
        ("wait queues", h.wait_queues_at, h.wait_queues * LINE, LINE),
        ("counters", h.counters_at, (parties + parties * -(-parties // 16)) * LINE, LINE),
        ("cells", h.cells_at, h.cells * h.capacity * 8, LINE),
        ("shard ids", h.shard_ids_at, h.shard_ids * h.capacity * 4, LINE),
    ]
    if inside:
        need(h.stamps_stride == slot and h.events_at == h.stamps_at + at, "its slots")
        areas.append(("slots", h.stamps_at, h.capacity * slot, 4096))
    else:
        areas.append(("stamps", h.stamps_at, h.capacity * h.stamps_stride, LINE))
        areas.append(("events", h.events_at, h.capacity * h.event_size, 4096))
    spans = []
    for name, begin, bytes_, align in areas:
        if bytes_ == 0:
            need(begin == 0, f"the offset of {name}")
            continue
        need(begin >= HEAD and begin % align == 0 and begin + bytes_ <= h.length, f"the {name}")
        spans.append((begin, begin + bytes_, name))
    spans.sort()
    for one, other in zip(spans, spans[1:]):
        need(one[1] <= other[0], f"{one[2]} and {other[2]} overlap")


def line_count(stage):
    """Returns the number of lines of a stage."""
    room = stage.room
    return {EACH: 1, POOL: 1 + room + 1, SHARDS: room, TAP: 1 + 2 * room}[stage.delivery]


# A segment, and its words.


class Segment:
    """A mapped segment. All loads are of words that other processes change at any time."""

    def __init__(self, name):
        self.path = path_of(name)
        self.fd, length = open_file(self.path)
        try:
            head = os.pread(self.fd, HEAD, 0)
            if len(head) < HEAD:
                raise Refused("it was shortened while it was read: make it anew")
            self.header, self.stages = check_head(head, length)
            in_memory = file_system(self.fd) == TMPFS
            if not (is_known(self.header.boot) or in_memory or self.probe(0, 1025) is not None):
                raise Refused("it may be older than the machine's last start: mount /proc")
            if self.header.stages == 0:
                raise Refused("it has no ring: make it anew with a stage")
            if self.header.stamps_stride == 0:
                raise Refused("its ring has no stamps, and this program knows none without")
            try:
                self.map = mmap.mmap(self.fd, length, access=mmap.ACCESS_READ)
            except (ValueError, OverflowError):
                raise Refused(f"its {length} bytes cannot be mapped: make it anew") from None
        except BaseException:
            os.close(self.fd)
            raise
        # An item of such a view is loaded by one load.
        view = memoryview(self.map)[: length & ~7]
        self.words, self.halves = view.cast("Q"), view.cast("I")
        view.release()
        self.capacity = self.header.capacity
        self.shift = self.capacity.bit_length() - 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.words.release()
        self.halves.release()
        self.map.close()
        os.close(self.fd)

    def word(self, at):
        """Loads the word at an offset."""
        return self.words[at >> 3]

    def line(self, index):
        """Loads the word of a line."""
        return self.word(self.header.lines_at + index * LINE)

    def seat(self, index):
        """Loads the words of a seat."""
        at = (self.header.seats_at + index * LINE) >> 3
        names = "owner state lo mid hi left held boundary unread deaths".split()
        return Record(names, [self.words[at + word] for word in range(10)])

    def bits(self):
        """Loads the status bits and the last position."""
        at = self.header.status_at
        return self.halves[at >> 2], self.word(at + 8)

    # Stamps.

    def lap(self, seq):
        """Returns the lap field of a position."""
        return (((seq >> self.shift) + 1) << LAP_SHIFT) & MASK

    def stamp(self, seq):
        """Loads the stamp in a position's slot, of whatever lap."""
        at = self.header.stamps_at
        return self.word(at + (seq & (self.capacity - 1)) * self.header.stamps_stride)

    def read_stamp(self, stamp, seq):
        """Returns the length of the run that begins at a position by a stamp, and whether it is
        live. None: no run begins there."""
        rest = stamp ^ self.lap(seq)
        if 1 <= rest <= MAX_RUN:
            return rest, True
        if 1 <= rest - TOMBSTONE <= MAX_RUN:
            return rest - TOMBSTONE, False
        return None

    def run(self, seq):
        """Loads the stamp of a position, and reads it."""
        return self.read_stamp(self.stamp(seq), seq)

    def is_later(self, stamp, seq):
        """Returns whether a stamp is of a later lap than a position."""
        if stamp & ((1 << LAP_SHIFT) - 1) == 0:
            return False
        bits = min(64 - LAP_SHIFT, 64 - self.shift)
        laps = ((stamp - self.lap(seq)) >> LAP_SHIFT) & ((1 << bits) - 1)
        return 0 < laps < 1 << (bits - 1)

    def walk(self, begin):
        """Returns the end of the runs that follow each other from a position on. None: producers
        have overtaken the walk, or a stamp is damaged, and the published end is not known."""
        seq = begin
        for _ in range(2 * self.capacity + 1):
            stamp = self.stamp(seq)
            run = self.read_stamp(stamp, seq)
            if run is None:
                return None if self.is_later(stamp, seq) else seq
            seq = (seq + run[0]) & MASK
        return None

    # Positions.

    def pool(self, stage):
        """Returns the position of a pool's claim word, and the events left in the run there."""
        landmark = self.line(stage.line + 1 + stage.room)
        claim = self.line(stage.line)
        return widen(claim >> 16, 48, landmark), claim & 0xFFFF

    def bounds(self, stage, near):
        """Returns the position of each seat of a pool or tap; None: the seat is idle."""
        bounds = [self.line(stage.line + 1 + seat) for seat in range(stage.room)]
        return [None if bound & IDLE else widen(bound >> 1, 63, near) for bound in bounds]

    def boundary(self):
        """Returns the furthest position that is known to be the end of a run. A stage that follows
        others may stand inside of a run."""
        ends = [self.header.first, self.line(SENTINEL_LINE), self.line(CURSOR_LINE)]
        for stage in self.stages:
            if stage.after == 0 and stage.delivery == POOL:
                claimed, left = self.pool(stage)
                ends.append((claimed + left) & MASK)
            elif stage.after == 0:
                seats = range(stage.first_seat, stage.first_seat + stage.seats)
                ends += [self.seat(seat).boundary for seat in seats]
        return latest(ends)

    def published(self, known=None):
        """Returns a position before which all events are published, not behind `known`, and whether
        it is the published end. Producers that overtake one walk after the other hide the end."""
        for _ in range(WALKS):
            begin = self.boundary() if known is None else later(known, self.boundary())
            end = self.walk(begin)
            if end is not None:
                return end, True
        return begin, False

    def position(self, stage):
        """Returns the frontier of a stage, the position up to which it has taken events, as far as
        its lines say, and the frontiers of its shards. A pool's frontier may be too low."""
        if stage.delivery == POOL:
            # The claim word is loaded first.
            claimed, _ = self.pool(stage)
            return least([claimed] + self.bounds(stage, claimed)), claimed, []
        if stage.delivery == SHARDS:
            shards = [self.line(stage.line + shard) for shard in range(stage.room)]
            return least(shards), least(shards), shards
        return (self.line(stage.line),) * 2 + ([],)

    def frontier(self, stage):
        """Returns the frontier of a stage that is no tap, or of a pool a lower position."""
        return self.position(stage)[0]

    def gating(self):
        """Returns the stages that no other stage follows."""
        followed = 0
        for stage in self.stages:
            followed |= stage.after
        return [stage for index, stage in enumerate(self.stages) if not followed >> index & 1]

    def reuse_limit(self):
        """Returns a position from which on no producer writes to the slots of the positions."""
        gating, limits = self.gating(), []
        for stage in gating:
            if stage.delivery == POOL:
                limits.append(self.pool(stage)[0])
            elif stage.delivery != TAP:
                limits.append(self.frontier(stage))
        if any(stage.delivery == TAP for stage in gating):
            limits.append(self.line(self.header.lines - 1))
        return least(limits)

    def released(self):
        """Returns the position before which all writing stages have released; None: none writes."""
        return least([self.frontier(stage) for stage in self.stages if stage.access])

    # Participants.

    def probe(self, byte, count=1):
        """Returns the kind of a lock on some of the bytes; None: there is none."""
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, MAX_LENGTH + byte, count, 0)
        kind = struct.unpack(FLOCK, fcntl.fcntl(self.fd, F_OFD_GETLK, asked))[0]
        return None if kind == fcntl.F_UNLCK else kind

    def participants(self):
        """Returns the participants that are attached, or dead and not recovered."""
        found = []
        for number in range(1, self.header.participants + 1):
            at = self.header.participants_at + (number - 1) * LINE
            raw = struct.pack("=16Q", *(self.word(at + 8 * word) for word in range(16)))
            state, pid, uid, start, namespace, joined, _, name = PARTICIPANT.unpack(raw)
            attached, lock = state & 0xFFFFFFFF != 0, self.probe(number)
            if lock is None:
                liveness = "dead" if attached else "free"
            elif lock == fcntl.F_RDLCK:
                liveness = "held by a reader"
            elif attached and not is_gone(pid, start, namespace):
                liveness = "alive"
            else:
                liveness = "held by another"
            if liveness != "free":
                found.append(
                    {
                        "number": number,
                        "pid": pid,
                        "uid": uid,
                        "name": text(name),
                        "joined": joined,
                        "liveness": liveness,
                    }
                )
        return found

    # The whole.

    def summary(self):
        """Returns what the segment says of itself, as values for JSON."""
        h = self.header
        stale = self.probe(0, MAX_PARTICIPANTS + 1) is None
        # Frontiers, then seats, then stamps: each only grows, and none is ahead of a later one.
        lines = [self.position(stage) for stage in self.stages]
        seats = [self.seat(seat) for seat in range(h.seats)]
        published, _ = self.published()
        stages = []
        for stage, (position, taken, shards) in zip(self.stages, lines):
            before = [other for bit, other in enumerate(stages) if stage.after >> bit & 1]
            of_stage = seats[stage.first_seat :][: stage.seats]
            places = [place(seat) for seat in of_stage]
            if stage.delivery == TAP:
                bounds = self.bounds(stage, published)
                for seat, bound in zip(places, bounds):
                    seat["position"] = bound
                position = least([other["position"] for other in before] + bounds)
                position = taken = published if position is None else position
            elif stage.delivery != POOL:
                taken = later(taken, latest(seat.held for seat in of_stage))
            for seat, shard in zip(places, shards):
                seat["position"] = shard
            stages.append(
                {
                    "name": text(stage.name),
                    "writes": bool(stage.access),
                    "delivery": DELIVERIES[stage.delivery],
                    "room": stage.room,
                    "after": [other["name"] for other in before],
                    "on_death": ON_DEATH[stage.on_death],
                    "position": position,
                    "held": taken,
                    "lag": max(0, ahead(published, position)),
                    "seats": places,
                }
            )
        first = sum(stage.seats for stage in self.stages)
        producers = seats[first : first + h.producers]
        return {
            "path": self.path,
            "name": name_of(self.path),
            "id": h.id.hex(),
            "type_name": text(h.type_name),
            "type_version": h.type_version,
            "event_size": h.event_size,
            "contents": CONTENTS[h.kind],
            "capacity": self.capacity,
            "first": h.first,
            "length": h.length,
            "created": h.created,
            "producers": h.producers,
            "notice_ms": h.notice_ms,
            "ending": ending(self.bits()[0]),
            "failure": self.failure(),
            "published": published,
            "producer_seats": [place(seat) for seat in producers],
            "producer_on_death": ON_DEATH[h.producer_on_death],
            "stages": stages,
            "places": h.participants,
            "participants": self.participants(),
            "stale": stale,
        }

    def failure(self):
        """Returns the failure that a process recorded; None: there is none."""
        at = self.header.status_at + LINE
        state, party, seq, length = [self.word(at + 8 * word) for word in range(4)]
        raw = self.map[at + 32 : at + 32 + min(length, 256)]
        if state & 0xFFFFFFFF == 1:
            # Its process was stopped while it wrote, or has died.
            party, seq, raw = state >> 32, 0, b"its process has not written why"
        elif state != 2:
            return None
        party -= 1
        name = text(self.stages[party].name) if 0 <= party < len(self.stages) else "producer"
        at = (seq - 1) & MASK if seq else None
        return {"party": name, "seq": at, "reason": text(raw)}


def latest(positions):
    """Returns the latest of some positions."""
    return functools.reduce(later, positions)


def least(positions):
    """Returns the earliest of some positions, without those that are None; None: there is none."""
    found = None
    for seq in positions:
        if seq is not None and (found is None or ahead(found, seq) > 0):
            found = seq
    return found


def place(seat):
    """Returns what a seat says, as values for JSON."""
    participant = seat.owner & 0xFFFFFFFF
    owner = None if participant in (0, 0xFFFFFFFF) else participant
    orphan = participant == 0xFFFFFFFF
    deaths = seat.deaths & 0xFFFFFFFF
    return {
        "participant": owner,
        "orphan": orphan,
        "deaths": deaths,
        "position": None,
        "unread": seat.unread,
    }


def ending(bits):
    """Returns how a ring ended, by its status bits."""
    if bits == 0:
        return "running"
    if bits & (FAILED | HALTED):
        return "failed" if bits & FAILED else "halted"
    if bits & ~(CLOSED | CLOSING):
        return "damaged"
    return "closed" if bits & CLOSED else "closing"


def is_gone(pid, start, namespace):
    """Returns whether a recorded process is known to be gone. It proves no death."""
    try:
        if namespace == 0 or os.stat("/proc/self/ns/pid").st_ino != namespace:
            return False
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return os.path.exists("/proc/self/stat")
    except OSError:
        return False
    return fields[0] in (b"Z", b"X") or (start != 0 and int(fields[19]) != start)


def name_of(path):
    """Returns the name of a segment in /dev/shm, or None."""
    found = re.fullmatch(r"/dev/shm/([A-Za-z0-9_-][A-Za-z0-9_.-]{0,47})\.slipring", path)
    return found.group(1) if found else None


# Events.


class Observer:
    """Copies published events, and tells which copies are proven to be whole."""

    def __init__(self, segment, claims):
        self.segment = segment
        # Largest number of slots that a single producer claims at once; None: it is not known.
        self.claims = claims
        self.end, _ = segment.published()
        self.missed = 0

    def oldest(self):
        """Returns the first position within a lap of the published end at which a run begins. Of
        messages: the first one that some stage has not released."""
        segment, (end, _) = self.segment, self.move_end()
        if segment.header.kind == MESSAGES:
            # A stamp may be of a slot inside of a message. Stages release whole messages.
            stages = [stage for stage in segment.stages if stage.delivery != TAP]
            return least([end] + [segment.frontier(stage) for stage in stages])
        return self.next_run((end - min(segment.capacity, ahead(end, segment.header.first))) & MASK)

    def next_run(self, seq):
        """Returns the first position from `seq` on at which a run begins, or the published end."""
        while ahead(self.end, seq) > 0 and self.segment.run(seq) is None:
            seq = (seq + 1) & MASK
        return seq

    def begin(self, seq):
        """Checks the position that a user asks for. Returns the begin of its run."""
        oldest = self.oldest()
        if seq == self.end:
            return seq
        if self.segment.header.kind == MESSAGES:
            heads = self.heads(oldest)
        else:
            heads = ((seq - back) & MASK for back in range(self.segment.capacity))
        for head in heads:
            run = self.segment.run(head)
            if run and (seq - head) & MASK < run[0]:
                return head
        raise Refused(f"no event at {seq} is in the ring: begin at {oldest}, the oldest one")

    def heads(self, seq):
        """Yields the begin of each run from a position on, where one begins."""
        while ahead(self.end, seq) > 0:
            yield seq
            run = self.segment.run(seq)
            if run is None:
                return
            seq = (seq + run[0]) & MASK

    def move_end(self):
        """Walks on to the published end. Returns the furthest position that was found, and whether
        it is the end."""
        self.end, is_end = self.segment.published(self.end)
        return self.end, is_end

    def copy(self, seq, slots=1):
        """Copies an event, or the slots of a message. Returns the bytes, whether the copy is whole,
        and whether no stage is to change the event any more. None: the slot is known to have been
        published again."""
        segment, h = self.segment, self.segment.header
        released = segment.released()
        final = released is None or ahead(released, seq) > 0
        slot = seq & (segment.capacity - 1)
        if slot + slots > segment.capacity:
            raise Refused(f"it is damaged: a message at {seq} crosses the end of the ring")
        at = h.events_at + slot * h.events_stride
        copied = segment.map[at : at + (slots - 1) * h.events_stride + h.event_size]
        # All that the proof rests on is loaded behind the copy. It holds for later slots, too.
        whole = ORDERED and self.is_reused_later(seq)
        if not whole and ahead(self.move_end()[0], seq) > segment.capacity:
            return None
        return copied, whole, final

    def message(self, seq, cells):
        """Copies the message of a run. Returns its position, bytes, whole, final and kind. None: it
        is padding, or was overwritten."""
        copied = self.copy(seq, cells)
        if copied is not None:
            data, whole, final = copied
            length, kind = struct.unpack_from("=II", data)
            if length == PADDING:
                return None
            if length <= len(data) - 8:
                return seq, data[8 : 8 + length], whole, final, kind
            if whole:
                raise Refused(f"it is damaged: the message at {seq} has {length} bytes, as it says")
        self.missed += cells
        return None

    def is_reused_later(self, seq):
        """Returns whether it is proven that no producer has begun to write to the slot of a
        position again."""
        segment = self.segment
        if ahead(seq, segment.reuse_limit()) >= 0:
            return True
        if segment.header.producers > 1:
            return self.is_before_intents(seq)
        if self.claims is None:
            return False
        end, is_end = self.move_end()
        return is_end and ahead(seq + segment.capacity, end + self.claims) >= 0

    def is_before_intents(self, seq):
        """Returns whether no producer has intended to claim the slot of a position again."""
        segment = self.segment
        first = sum(stage.seats for stage in segment.stages)
        claimed = [segment.seat(first + seat).hi for seat in range(segment.header.producers)]
        # The end is looked for behind the intents. So no intent is beyond it by more than a lap,
        # but those of producers' seats that were never used.
        end, _ = self.move_end()
        recent = [hi for hi in claimed if ahead(hi, end) <= segment.capacity]
        return all(ahead(hi, seq) <= segment.capacity for hi in recent)

    def events(self, seq, follow):
        """Yields position, bytes, whole and final of each event from a position on, and of messages
        the kind. Yields None where it has to wait for the next event."""
        segment, asked, seq = self.segment, seq, self.begin(seq)
        while True:
            if ahead(self.move_end()[0], seq) > segment.capacity:
                oldest = self.oldest()
                self.missed += ahead(oldest, seq)
                seq = oldest
            if ahead(self.end, seq) <= 0:
                # The bits are loaded before the last look for events.
                bits, last = segment.bits()
                is_over = ending(bits) in ("failed", "halted", "damaged") or (
                    bits & CLOSED and ahead(last, seq) <= 0
                )
                if ahead(self.move_end()[0], seq) > 0:
                    continue
                if not follow or is_over or os.fstat(segment.fd).st_nlink == 0:
                    return
                yield None
                continue
            run = segment.run(seq)
            if run is None:
                # Between two looks, a producer has claimed the slot again.
                after = self.next_run((seq + 1) & MASK)
                if segment.header.kind == MESSAGES:
                    after = later(after, self.oldest())
                self.missed += ahead(after, seq)
                seq = after
                continue
            length, live = run
            if live and segment.header.kind == MESSAGES:
                if ahead(asked, seq) <= 0 and (message := self.message(seq, length)):
                    yield message
            elif live:
                for offset in range(length):
                    at = (seq + offset) & MASK
                    if ahead(asked, at) > 0:
                        continue
                    copied = self.copy(at)
                    if copied is None:
                        self.missed += 1
                    else:
                        yield (at, *copied)
            seq = (seq + length) & MASK


# The command line.


def say(line):
    """Prints a line."""
    try:
        print(line)
    except OSError as error:
        raise unwritten(error) from None


def flush():
    """Writes out what was printed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise unwritten(error) from None


def unwritten(error):
    """Returns what to raise where the output refuses a write."""
    if isinstance(error, BrokenPipeError):
        return error
    return Unwritten(f"the output cannot be written: {error.strerror or error}; print elsewhere")


def warn(line):
    """Prints a line for people beside the output."""
    try:
        print(line, file=sys.stderr)
    except OSError:
        pass  # nobody listens


def show(summary):
    """Prints a summary for people."""
    s = summary
    made = datetime.datetime.fromtimestamp(s["created"] // 10**9)
    state = "stale" if s["stale"] else s["ending"]
    say(
        f"{s['name'] or s['path']}: {s['type_name']} v{s['type_version']}, {s['capacity']} slots "
        f"of {s['event_size']} bytes, made {made}, {state}"
    )
    if s["failure"]:
        failure = s["failure"]
        say(f"  failed: {failure['party']} at {failure['seq']}: {failure['reason']}")
    people = {one["number"]: one for one in s["participants"]}

    def owners(seats):
        names = []
        for seat in seats:
            one = people.get(seat["participant"])
            if one:
                names.append(f"{one['name']} (pid {one['pid']}, {one['liveness']})")
            elif seat["orphan"]:
                names.append("(orphan)")
        return ", ".join(names) or "-"

    if s["producer_seats"]:
        say(f"  {'producer':20} at {s['published']}  {owners(s['producer_seats'])}")
    for stage in s["stages"]:
        say(
            f"  {stage['name']:20} at {stage['position']}  lag {stage['lag']}  {stage['delivery']}"
            f"  {owners(stage['seats'])}"
        )


def values_of(seq, data, form):
    """Returns the values of an event by a format."""
    size = struct.calcsize(form)
    if size != len(data):
        raise Refused(f"--format has {size} bytes, and the event at {seq} has {len(data)}")
    return struct.unpack(form, data)


def json_value(value):
    """Returns a value of a format as JSON has it: bytes in hexadecimal, and no number as a text."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def print_event(event, options):
    """Prints an event, or a message."""
    seq, data, whole, final, *kind = event
    values = values_of(seq, data, options.format) if options.format is not None else None
    if options.json:
        line = {"seq": seq, "whole": whole, "final": final}
        line.update({"kind": number for number in kind})
        if values is None:
            line["bytes"] = data.hex()
        else:
            line["values"] = [json_value(value) for value in values]
        say(json.dumps(line))
    else:
        proof = "whole" if whole else "unproven"
        more = "" if final else " changing"
        more += "".join(f" kind {number}" for number in kind)
        say(f"{seq} {proof}{more} {data.hex() if values is None else values}")


def events(options):
    """Prints the events of a segment."""
    with Segment(options.name) as segment:
        if options.format is not None and segment.header.kind != MESSAGES:
            values_of(segment.header.first, bytes(segment.header.event_size), options.format)
        observer = Observer(segment, options.claims)
        begin = observer.oldest() if options.begin is None else options.begin
        count = 0
        for event in observer.events(begin, options.follow):
            if event is None:
                flush()
                time.sleep(options.interval)
                continue
            print_event(event, options)
            count += 1
            if count == options.count:
                break
        flush()
        if options.json:
            say(json.dumps({"missed": observer.missed}))
        elif observer.missed:
            warn(f"missed {observer.missed} events that were overwritten first")


def ls(options):
    """Prints every segment in /dev/shm."""
    for file in sorted(os.listdir(FOLDER)):
        path = f"{FOLDER}/{file}"
        if name_of(path):
            try:
                with Segment(path) as segment:
                    summary = segment.summary()
            except Missing:
                continue
            except Refused as error:
                warn(f"{path}: {error}")
                continue
            except OSError as error:
                warn(f"{path}: {error.strerror or error}")
                continue
            say(json.dumps(summary)) if options.json else show(summary)


def number(least, most):
    """Returns a function that reads a number of a range, for an argument."""

    def read(given):
        if not re.fullmatch(r"[0-9]{1,20}", given) or not least <= int(given) <= most:
            raise argparse.ArgumentTypeError(f"{given!r} is no number from {least} to {most}")
        return int(given)

    return read


def pause(given):
    """Reads a pause, in seconds."""
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{given!r} is no number of seconds from 0 to 3600")
    return seconds


def form(given):
    """Reads a format of an event."""
    try:
        struct.calcsize(given)
    except (struct.error, UnicodeError, MemoryError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{given!r} is no format of `struct`: {error}") from None
    return given


def arguments():
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Looks at segments of slipring.")
    commands = parser.add_subparsers(dest="command", required=True)
    of_all = commands.add_parser("ls", help="every segment in /dev/shm")
    of_one = commands.add_parser("show", help="stages, positions and participants of a segment")
    of_events = commands.add_parser("events", help="the published events of a segment")
    for command in (of_all, of_one, of_events):
        command.add_argument("--json", action="store_true", help="print JSON")
    for command in (of_one, of_events):
        command.add_argument("name", help="name of a segment, or path")
    position, count, slots = number(0, MASK), number(1, MASK), number(1, MAX_LENGTH)
    add = of_events.add_argument
    add("--follow", action="store_true", help="go on until the ring ends")
    add("--from", dest="begin", type=position, help="position to begin at")
    add("--count", type=count, help="number of events to print at most")
    add("--claims", type=slots, help="slots that the one producer claims at most")
    add("--format", type=form, help="format of an event, as of Python's struct")
    add("--interval", type=pause, default=0.001, help="pause, in seconds")
    return parser.parse_args()


def main():
    """Runs a command. Returns the exit code."""
    if sys.stdout is not None:
        # Names may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = arguments()
    name = getattr(options, "name", FOLDER)
    try:
        if options.command == "ls":
            ls(options)
        elif options.command == "show":
            with Segment(options.name) as segment:
                summary = segment.summary()
            say(json.dumps(summary)) if options.json else show(summary)
        else:
            events(options)
        flush()
        return 0
    except (BrokenPipeError, KeyboardInterrupt):
        code = 0  # nobody reads the rest
    except Unwritten as error:
        code = 1
        warn(error)
    except Refused as error:
        code = 1
        warn(f"{name}: {error}")
    except OSError as error:
        code = 1
        warn(f"{name}: {error.strerror or error}: try again, or name another segment")
    try:
        flush()
    except (OSError, Unwritten):
        # What Python still has is not written at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    sys.exit(main())
