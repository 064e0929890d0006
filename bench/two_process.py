#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two processes of one host against UCX and libfabric, which use shared memory by themselves there.

usage: two_process.py BUILDDIR [--rounds N] [--seconds S] [--only WORD] [--markdown]

Each side is pinned to a processor of its own. A round runs softmlx5 and its yardstick one after the other, so that
a drifting machine shifts both; the ratio is the median of the rounds' ratios, and over 1 says that softmlx5 is
better. Times are averages over a run, not the best of it.
"""
import argparse
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

START_SECONDS = 10
RUN_SECONDS = 60
FIRST_COUNT = 1024	# of operations; all counts are multiples of it, as post lists want
MIB = 1048576


class Failed(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def listens(port):
    want = f':{port:04X} '
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        for line in open(table):
            if want in line and line.split()[1].endswith(want.strip()) and line.split()[3] == '0A':
                return True
    return False


def pair(server, client, port, env=None):
    """Runs both, pinned. RETURN what the client printed."""
    cpus = sorted(os.sched_getaffinity(0))
    full = dict(os.environ, **(env or {}))

    def start(command, cpu):
        return subprocess.Popen(['taskset', '-c', str(cpu)] + [str(c) for c in command], env=full, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    first = start(server, cpus[0])
    try:
        end = time.monotonic() + START_SECONDS
        while not listens(port) and first.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        second = start(client, cpus[-1])
        try:
            text = second.communicate(timeout=RUN_SECONDS)[0]
        finally:
            second.kill()
            second.wait()
        if second.returncode:
            raise Failed(f'{" ".join(map(str, client))}: exit {second.returncode}: {text.strip()[-300:]}')
        first.wait(timeout=10)
    except subprocess.TimeoutExpired as late:
        raise Failed(f'{" ".join(map(str, client))}: no end in {RUN_SECONDS} s') from late
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
    return text


class Bench:
    def __init__(self, build, seconds):
        self.build, self.seconds = build, seconds
        self.counts = {}

    def count(self, key, one, most=2000000):
        """How many operations fill the time that a run gets, from how long one took when last asked."""
        if key not in self.counts:
            self.counts[key] = FIRST_COUNT
            one()
        return max(FIRST_COUNT, min(most, self.counts[key] // FIRST_COUNT * FIRST_COUNT))

    def learn(self, key, seconds_each):
        self.counts[key] = int(self.seconds / max(seconds_each, 1e-8))

    def perftest(self, program, size, *more):
        key = (program, size, more)

        def run(count):
            port = free_port()
            command = [self.build / 'bin' / 'softmlx5', 'run', program, '-d', 'mlx5_0', '-F', '-s', size, '-n', count,
                       '-p', port, *more]
            text = pair(command, command + ['127.0.0.1'], port, {'SOFTMLX5_HOST': 'on'})
            row = re.search(rf'^\s*{size}\s+\d+\s+(.*)$', text, re.M)
            if not row:
                raise Failed(f'{program}: {text.strip()[-300:]}')
            return [float(v) for v in row[1].split()]

        def latency(values):
            self.learn(key, values[3] * 2e-6)
            return values[3]			# t_avg, us

        def bandwidth(values):
            self.learn(key, 1e-6 / max(values[2], 1e-6))
            return values				# peak and average in MiB/s, M messages/s

        take = latency if program.endswith('_lat') else bandwidth
        return take(run(self.count(key, lambda: take(run(FIRST_COUNT)))))

    def ucx(self, test, size, tls=None, *more):
        key = ('ucx', test, size, tls, more)

        def run(count):
            port = free_port()
            command = ['ucx_perftest', '-f', '-t', test, '-s', size, '-n', count, '-w', max(100, count // 20), '-p', port, *more]
            env = {'UCX_LOG_LEVEL': 'error', 'UCX_WARN_UNUSED_ENV_VARS': 'n'}
            if tls:
                env['UCX_TLS'] = tls
            text = pair(command, command[:1] + ['127.0.0.1'] + command[1:], port, env)
            # iterations, typical, average and overall time in us, average and overall MiB/s and messages/s
            rows = [line.split() for line in text.splitlines() if re.match(r'^\s*\d+(\s+[\d.]+){7}\s*$', line)]
            if not rows:
                raise Failed(f'ucx_perftest {test}: {text.strip()[-300:]}')
            values = [float(v) for v in rows[-1]]
            self.learn(key, values[3] * 1e-6 * (2 if 'lat' in test else 1))
            return values
        return run(self.count(key, lambda: run(FIRST_COUNT)))

    def libfabric(self, size):
        key = ('fi', size)

        def run(count):
            port = free_port()
            command = ['fi_pingpong', '-p', 'shm', '-e', 'rdm', '-I', count, '-S', size]
            text = pair(command + ['-B', port], command + ['-P', port, '127.0.0.1'], port)
            row = re.findall(r'^\S+\s+\S+\s+\S+\s+\S+\s+\S+s\s+[\d.]+\s+([\d.]+)\s', text, re.M)
            if not row:
                raise Failed(f'fi_pingpong: {text.strip()[-300:]}')
            self.learn(key, float(row[-1]) * 2e-6)
            return float(row[-1])
        return run(self.count(key, lambda: run(FIRST_COUNT)))

    def own(self, mode, amount):
        env = dict(os.environ, SOFTMLX5_HOST='on')
        done = subprocess.run([str(self.build / 'bench' / 'pair_bench'), mode, str(amount)], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=RUN_SECONDS, check=False)
        if done.returncode:
            raise Failed(f'pair_bench {mode}: {done.stdout.strip()[-300:]}')
        return float(done.stdout.split()[-1])


def size_name(n):
    return f'{n} B' if n < 1024 else f'{n >> 10} KiB' if n < MIB else f'{n >> 20} MiB'


def rows(b):
    """name, unit, whether more is better, ours, the yardstick's name, yardstick"""
    gb = MIB / 1e9
    uct = ['-d', 'memory', '-x', 'posix']
    for size in (8, 4096):
        yield (f'RDMA WRITE {size_name(size)}, latency', 'us', False,
               lambda s=size: b.perftest('ib_write_lat', s), 'UCX posix put_lat',
               lambda s=size: b.ucx('put_lat', s, None, *uct, *(['-D', 'bcopy'] if s > 1024 else []))[3])
    for size in (4096, 65536, MIB):
        yield (f'RDMA WRITE {size_name(size)}, bandwidth', 'GB/s', True,
               lambda s=size: b.perftest('ib_write_bw', s)[1] * gb, 'UCX posix,cma ucp_put_bw',
               lambda s=size: b.ucx('ucp_put_bw', s, 'posix,cma')[5] * gb)
    for size in (8, 4096):
        yield (f'SEND {size_name(size)}, latency', 'us', False,
               lambda s=size: b.perftest('ib_send_lat', s), 'UCX posix tag_lat',
               lambda s=size: b.ucx('tag_lat', s, 'posix')[3])
        yield (f'SEND {size_name(size)}, latency', 'us', False,
               lambda s=size: b.perftest('ib_send_lat', s), 'libfabric shm',
               lambda s=size: b.libfabric(s))
    for size in (4096, 65536, MIB):
        yield (f'SEND {size_name(size)}, bandwidth', 'GB/s', True,
               lambda s=size: b.perftest('ib_send_bw', s)[1] * gb, 'UCX posix,cma tag_bw',
               lambda s=size: b.ucx('tag_bw', s, 'posix,cma')[5] * gb)
    batch = ['-t', 512, '-Q', 64, '-l', 64]
    yield ('RDMA WRITE 8 B, rate (ib_write_bw, lists of 64)', 'M/s', True,
           lambda: b.perftest('ib_write_bw', 8, *batch)[2], 'UCX posix am_bw', lambda: b.ucx('am_bw', 8, None, *uct)[7] / 1e6)
    yield ('SEND 8 B, rate (ib_send_bw, lists of 64)', 'M/s', True,
           lambda: b.perftest('ib_send_bw', 8, '-r', 2048, *batch)[2], 'UCX posix am_bw',
           lambda: b.ucx('am_bw', 8, None, *uct)[7] / 1e6)
    for mode in ('write', 'send'):
        yield (f'{"RDMA WRITE" if mode == "write" else "SEND"} 8 B, rate (pair_bench, lists of 64)', 'M/s', True,
               lambda m=mode: b.own(m, b.seconds), 'UCX posix am_bw', lambda: b.ucx('am_bw', 8, None, *uct)[7] / 1e6)
    yield ('a connected pair that does nothing: processor time', 'us/s', False, lambda: b.own('idle', 10), None, None)


def spread(values):
    return f'{min(values):.3g}..{max(values):.3g}'


def measure(rounds, ours, other):
    """RETURN values of both and the rounds' ratios of them."""
    a, b = [], []
    for _ in range(rounds):
        a.append(ours())
        if other:
            b.append(other())
    return a, b


def table(build, args):
    bench = Bench(build, args.seconds)
    bar = ' | ' if args.markdown else '  '
    heads = ['two processes, each on a processor of its own', 'softmlx5', 'min..max', 'yardstick', 'its median', 'ratio', 'unit']
    widths = [52, 9, 14, 25, 10, 5, 4]

    def line(cells):
        text = bar.join(f'{c:<{w}}' if i in (0, 3, 6) else f'{c:>{w}}' for i, (c, w) in enumerate(zip(cells, widths)))
        print(f'| {text} |' if args.markdown else text, flush=True)
    line(heads)
    if args.markdown:
        print('|' + '|'.join('---' if i in (0, 3, 6) else '---:' for i in range(len(heads))) + '|')
    for name, unit, more, ours, other_name, other in rows(bench):
        if args.only and args.only not in name and args.only not in (other_name or ''):
            continue
        program = (other_name or '').split()[:1]
        if program and not shutil.which({'UCX': 'ucx_perftest', 'libfabric': 'fi_pingpong'}[program[0]]):
            line([name, '', '', other_name, 'absent', '', unit])
            continue
        try:
            a, b = measure(args.rounds if other else 1, ours, other)
        except Failed as why:
            line([name, 'failed', '', other_name or '', '', '', unit])
            print(f'# {why}', file=sys.stderr)
            continue
        ratio = statistics.median((x / y if more else y / x) for x, y in zip(a, b)) if b else None
        line([name, f'{statistics.median(a):.3g}', spread(a) if b else '', other_name or '',
              f'{statistics.median(b):.3g}' if b else '', f'{ratio:.2f}' if b else '', unit])


def main(argv):
    parser = argparse.ArgumentParser(description='Two processes against UCX and libfabric.')
    parser.add_argument('build', type=pathlib.Path)
    parser.add_argument('--rounds', type=int, default=9, help='runs of each side, at least 9 for figures to be kept')
    parser.add_argument('--seconds', type=float, default=0.2, help='of each run')
    parser.add_argument('--only', help='rows whose name has this')
    parser.add_argument('--markdown', action='store_true')
    args = parser.parse_args(argv)
    if args.rounds < 1 or args.seconds <= 0:
        parser.error('--rounds and --seconds must be positive')
    if len(os.sched_getaffinity(0)) < 2:
        print('needs two processors, has one')
        return
    table(args.build.resolve(), args)


if __name__ == '__main__':
    main(sys.argv[1:])
