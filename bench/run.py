#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the benchmarks and prints a table: medians, and the ratio to the yardstick measured in turn with it.

usage: run.py BUILDDIR [local|posting|two_process|scale]

Rounds alternate between softmlx5 and its yardstick, so that a drifting machine shifts both. A ratio over 1
says softmlx5 is faster. Instructions are counted by callgrind (exact, repeatable). Posting is measured by one
binary on both libraries, with nothing that executes what is posted.
"""
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import scale_tables
import two_process

ROUNDS = '9'
POSTS = 51200         # requests a measurement of posting
SHORT_RUN, LONG_RUN = 3200, 6400    # requests, where instructions are counted
NOTHING = 2           # a queue pair that does nothing: what the benchmark's own loop takes


def rows_of(program, *args):
    out = subprocess.run([str(program), *args], check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in out.splitlines():
        name, unit, ours, other = line.split('\t')
        yield (name, unit, [float(v) for v in ours.split()],
               None if other == '-' else [float(v) for v in other.split()])


def spread(values):
    return f'{min(values):.3g}..{max(values):.3g}'


def counted(command, env=None, prefix=(), options=()):
    """Instructions of a run, as callgrind counts them."""
    with tempfile.TemporaryDirectory() as tmp:
        done = subprocess.run([*prefix, 'valgrind', '--tool=callgrind', f'--callgrind-out-file={tmp}/out', *options,
                               *command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=True)
    return int(re.search(r'Collected : (\d+)', done.stderr)[1])


def request_instructions(program, row):
    """Two runs of different length; what is not the requests' cancels out."""
    short, long = (counted([str(program), '--count', str(row), str(n)]) for n in (SHORT_RUN, LONG_RUN))
    return (long - short) / (LONG_RUN - SHORT_RUN)


def local(build):
    program = build / 'bench' / 'local_bench'
    valgrind = shutil.which('valgrind')
    print(f'{"posted, executed, completed, polled; one thread":<44} {"median":>8} {"min..max":>14} {"against":>8} {"ratio":>6}')
    for row, (name, unit, ours, other) in enumerate(rows_of(program, ROUNDS)):
        line = f'{name:<44} {statistics.median(ours):>8.3g} {spread(ours):>14} '
        if other:
            ratio = statistics.median(a / b for a, b in zip(ours, other))
            line += f'{statistics.median(other):>8.3g} {ratio:>6.2f}  {unit}'
        else:
            line += f'{"":>8} {"":>6}  {unit}'
            if valgrind:
                line += f', {request_instructions(program, row):.0f} instructions each'
        print(line, flush=True)


class Poster:
    """posting_bench on one side: softmlx5 with its device off, or the installed libmlx5."""
    def __init__(self, build, theirs):
        self.program = str(build / 'bench' / 'posting_bench')
        launcher = pathlib.Path(__file__).resolve().parent.parent / 'tests' / 'oracle' / 'with_libmlx5.sh'
        self.prefix = [str(launcher), str(build)] if theirs else []
        self.env = dict(os.environ) if theirs else dict(os.environ, SOFTMLX5_DEVICE='off',
                                                        LD_LIBRARY_PATH=str(build / 'lib'))
        # Both on one processor: only one runs at a time, and processors may differ.
        processor = {min(os.sched_getaffinity(0))}
        self.process = subprocess.Popen([*self.prefix, self.program], env=self.env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1,
                                        preexec_fn=lambda: os.sched_setaffinity(0, processor))

    def builders(self):
        return subprocess.run([*self.prefix, self.program, '--list'], env=self.env, check=True, text=True,
                              stdout=subprocess.PIPE).stdout.splitlines()

    def ns(self, *asked):
        print(*asked, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def instructions(self, builder, batch, lock, requests=6400):
        """A request's, exactly: only posting is collected."""
        return counted([self.program, str(builder), str(batch), str(lock), str(requests)], env=self.env,
                       prefix=self.prefix, options=['--collect-atstart=no']) / requests


def posting(build):
    """What a loop of the same shape takes that calls functions which do nothing is left out, on both sides."""
    sides = [Poster(build, False), Poster(build, True)]
    print(f'{"posting alone: ns, instructions a request":<42} {"softmlx5":>14} {"libmlx5":>14} {"ratio of ns":>11}'
          f' {"of instructions":>15}')
    for lock in (1, 0):
        for number, name in enumerate(sides[0].builders()):
            for batch in (1, 32):
                asked, loop = ((number, batch, which, POSTS) for which in (lock, NOTHING))
                for side in sides:
                    side.ns(*asked)        # the first makes the queue and warms it
                pairs = [[side.ns(*asked) - side.ns(*loop) for side in sides] for _ in range(int(ROUNDS))]
                counts = [side.instructions(number, batch, lock) - side.instructions(number, batch, NOTHING)
                          for side in sides]
                ours, theirs = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
                ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
                label = f'{name}, {batch} a doorbell{"" if lock else ", no lock"}'
                print(f'{label:<42} {ours:>7.2f} {counts[0]:>6.0f} {theirs:>7.2f} {counts[1]:>6.0f} {ratio:>11.2f}'
                      f' {counts[1] / counts[0]:>15.2f}', flush=True)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    which = sys.argv[2:] or ['local', 'posting', 'two_process', 'scale']
    commit = subprocess.run(['git', 'describe', '--always', '--dirty'], stdout=subprocess.PIPE, text=True).stdout.strip()
    model = re.search(r'model name\s*: (.*)', pathlib.Path('/proc/cpuinfo').read_text())
    print(f'{model[1] if model else platform.machine()}, {os.cpu_count()} processors, commit {commit or "unknown"}, '
          f'medians of {ROUNDS} rounds\n')
    for name in which:
        {'local': local, 'posting': posting, 'two_process': lambda b: two_process.main([str(b)]),
         'scale': lambda b: scale_tables.main(b, counted)}[name](build)
        print()


main()
