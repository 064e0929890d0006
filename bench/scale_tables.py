# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What one request and one object cost among many: bench/scale, as tables.

A request is compared with the same request through one object, and what it takes more with what a plain loop takes more
that touches as many cache lines of as many objects, measured in turn with it. Instructions are callgrind's.
"""
import statistics
import subprocess

ROUNDS = '5'
MEMORY = [                  # name, kind, depth of its queue, bytes of the queue that was asked for
    ('context', 'context', 0, 0),
    ('queue pair, send queue of 1', 'queue pair', 1, 64),
    ('queue pair, send queue of 32', 'queue pair', 32, 2048),
    ('DC target', 'DC target', 0, 0),
    ('completion queue of 2', 'completion queue', 2, 128),
    ('memory key', 'memory key', 0, 0),
    ('address handle', 'address handle', 0, 0),
]
LIFETIME_COUNTS = (100, 10000)


def fields(program, *args):
    out = subprocess.run([str(program), *args], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.split('\t') for line in out.splitlines()]


def numbers(text):
    return [float(v) for v in text.split()]


def medians(pairs, of):
    return statistics.median(of(*pair) for pair in pairs)


def speed(scale, instructions):
    print(f'{"RDMA WRITE of 8 B through":<34} {"ns":>6} {"of one":>7} {"ns more":>8} {"loop: more":>10} '
          f'{"instructions":>12}')
    one = {}
    for kind, order, count, ours, loop in fields(scale, 'speed', ROUNDS):
        ours, loop = numbers(ours), numbers(loop)
        one.setdefault((kind, order), (ours, loop))
        ours1, loop1 = one[kind, order]
        counted = f'{instructions("requests", kind, count, 16000):.0f}' if int(count) <= 1000 else ''
        label = f'{int(count):,} {kind}{"s" if int(count) > 1 else ""}, {order}'
        print(f'{label:<34} {statistics.median(ours):>6.0f} '
              f'{medians(zip(ours, ours1), lambda n, m: n / m):>7.2f} '
              f'{medians(zip(ours, ours1), lambda n, m: n - m):>8.0f} '
              f'{medians(zip(loop, loop1), lambda n, m: n - m):>10.0f} {counted:>12}', flush=True)


def threads(scale):
    print(f'{"threads, each with a queue pair":<34} {"M/s":>6} {"min..max":>12} {"processors":>10} {"M/s of each":>11}')
    for count, rates, busy in fields(scale, 'threads', ROUNDS):
        rates, busy = numbers(rates), numbers(busy)
        print(f'{count:<34} {statistics.median(rates):>6.2f} {f"{min(rates):.3g}..{max(rates):.3g}":>12} '
              f'{statistics.median(busy):>10.2f} {medians(zip(rates, busy), lambda r, b: r / b):>11.2f}', flush=True)


def lifetime(scale, instructions):
    print(f'{"making and ending one of":<34} {"made, ns":>9} {"ended, ns":>9} {"instructions of both":>20}')
    for kind, count, made, ended in fields(scale, 'lifetime'):
        counted = min(int(count), LIFETIME_COUNTS[1])
        label = f'{int(count):,} {kind}s'
        print(f'{label:<34} {made:>9} {ended:>9} {instructions("objects", kind, counted):>20.0f}', flush=True)


def memory(scale):
    print(f'{"memory of one among many":<34} {"bytes":>7} {"asked for":>9}')
    for at, (name, kind, depth, asked) in enumerate(MEMORY):
        [[process, each]] = fields(scale, 'memory', kind, str(depth))
        if not at:
            print(f'{"process with a device":<34} {process:>7} {0:>9}')
        print(f'{name:<34} {each:>7} {asked:>9}', flush=True)


def main(build, counted):
    """counted(command, options): instructions, as bench/run.py counts them."""
    scale = build / 'bench' / 'scale'

    def instructions(what, kind, count, *more):
        command = [str(scale), what, kind, str(count), *map(str, more)]
        return counted(command, options=['--collect-atstart=no']) / int(more[0] if more else count)

    print(f'(medians of {ROUNDS} rounds)')
    speed(scale, instructions)
    print()
    threads(scale)
    print()
    lifetime(scale, instructions)
    print()
    memory(scale)

