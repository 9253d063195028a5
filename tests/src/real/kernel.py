"""System calls that Rust's standard library does not have, asked for line by line.

    cut PATH FLAGS          shut the file system down; 1 flushes its journal first, 2 flushes nothing;
                            answers the nanosecond before
    flush PATH OFFSET LEN   start and await the writing of a range of a file, without any barrier
    map PATH                map a file, touch its pages, and keep them
"""

import ctypes
import fcntl
import mmap
import os
import struct
import sys
import time

# _IOR('X', 125, u32): XFS had it first, and ext4 took it over.
SHUTDOWN = 0x8004587D
# SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER.
WRITE_AND_WAIT = 7

libc = ctypes.CDLL(None, use_errno=True)
mappings = []


def cut(path, flags):
    directory = os.open(path, os.O_RDONLY)
    try:
        flags = struct.pack("I", int(flags))
        now = time.time_ns()
        fcntl.ioctl(directory, SHUTDOWN, flags)
        return now
    finally:
        os.close(directory)


def flush(path, offset, length):
    file = os.open(path, os.O_RDONLY)
    try:
        offset, length = ctypes.c_int64(int(offset)), ctypes.c_int64(int(length))
        if libc.sync_file_range(file, offset, length, WRITE_AND_WAIT) != 0:
            raise OSError(ctypes.get_errno(), "sync_file_range")
    finally:
        os.close(file)


def map_file(path):
    with open(path, "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    sum(mapping[::4096])
    mappings.append(mapping)


COMMANDS = {"cut": cut, "flush": flush, "map": map_file}

for line in sys.stdin:
    command, *arguments = line.split()
    try:
        print("ok", COMMANDS[command](*arguments) or 0, flush=True)
    except OSError as error:
        print("error", error, flush=True)
