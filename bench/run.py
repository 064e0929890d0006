#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the benchmarks and prints a table: medians, and the ratio to the yardstick measured in turn with it.

usage: run.py BUILDDIR [local|posting|two_process]

Rounds alternate between softmlx5 and its yardstick, so that a drifting machine shifts both. A ratio over 1
says softmlx5 is faster. Instructions are counted by callgrind (exact, repeatable).
"""
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

import two_process

ROUNDS = '9'


def rows_of(program, *args):
    out = subprocess.run([str(program), *args], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in out.splitlines():
        name, unit, ours, other = line.split('\t')
        yield (name, unit, [float(v) for v in ours.split()],
               None if other == '-' else [float(v) for v in other.split()])


def spread(values):
    return f'{min(values):.3g}..{max(values):.3g}'


def local(build):
    print(f'{"posted, executed, completed, polled; one thread":<44} {"median":>8} {"min..max":>14} {"against":>8} {"ratio":>6}')
    for name, unit, ours, other in rows_of(build / 'bench' / 'local_bench', ROUNDS):
        line = f'{name:<44} {statistics.median(ours):>8.3g} {spread(ours):>14} '
        if other:
            ratio = statistics.median(a / b for a, b in zip(ours, other))
            line += f'{statistics.median(other):>8.3g} {ratio:>6.2f}  {unit}'
        else:
            line += f'{"":>8} {"":>6}  {unit}'
        print(line, flush=True)


def instructions(program, builder, batch):
    """Instructions a request, from the difference of two run lengths."""
    def count(requests):
        with tempfile.TemporaryDirectory() as tmp:
            done = subprocess.run(['valgrind', '--tool=callgrind', f'--callgrind-out-file={tmp}/out', str(program),
                                   '--once', builder, str(batch), str(requests)], stderr=subprocess.PIPE, text=True, check=True)
        return int(re.search(r'Collected : (\d+)', done.stderr)[1])
    return (count(12800) - count(6400)) / 6400


def posting(build):
    program = build / 'bench' / 'posting_bench'
    print(f'{"posting only, device switched off":<32} {"batch":>5} {"ns":>8} {"min..max":>14} {"instructions":>12}')
    for name, unit, ours, _ in rows_of(program, ROUNDS):
        builder, batch = name.rsplit(' ', 1)
        print(f'{builder:<32} {batch:>5} {statistics.median(ours):>8.2f} {spread(ours):>14} '
              f'{instructions(program, builder, batch):>12.0f}', flush=True)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    which = sys.argv[2:] or ['local', 'posting', 'two_process']
    commit = subprocess.run(['git', 'describe', '--always', '--dirty'], stdout=subprocess.PIPE, text=True).stdout.strip()
    model = re.search(r'model name\s*: (.*)', pathlib.Path('/proc/cpuinfo').read_text())
    print(f'{model[1] if model else platform.machine()}, {os.cpu_count()} processors, commit {commit or "unknown"}, '
          f'medians of {ROUNDS} rounds\n')
    for name in which:
        {'local': local, 'posting': posting, 'two_process': lambda b: two_process.main([str(b)])}[name](build)
        print()


main()
