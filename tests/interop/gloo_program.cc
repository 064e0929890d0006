/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What PyTorch does with Gloo, over its ibverbs transport: sums by three algorithms, a broadcast and a barrier, between
 * all ranks, each element looked at. usage: gloo_program RANK RANKS FOLDER GID_INDEX */
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

static int rank, ranks;
static long wrong;

/* Rank r gives r + i % 7 as element i. */
static void fill(std::vector<float> &data)
{
	for (size_t i = 0; i < data.size(); i++)
		data[i] = (float)(rank + (int)(i % 7));
}

static void expect(const std::vector<float> &data, int times, int sum_of_ranks)
{
	for (size_t i = 0; i < data.size(); i++)
		wrong += data[i] != (float)(times * (int)(i % 7) + sum_of_ranks);
}

/* Gloo wants an algorithm's last completion to have been seen before it is destroyed, so none is. */
template <class Algorithm>
static void sum(const std::shared_ptr<gloo::Context> &context, std::vector<float> &data)
{
	auto *algorithm = new Algorithm(context, { data.data() }, (int)data.size());

	for (int i = 0; i < 20; i++) {
		fill(data);
		algorithm->run();
		expect(data, ranks, ranks * (ranks - 1) / 2);
	}
}

static void broadcast(const std::shared_ptr<gloo::Context> &context, std::vector<float> &data)
{
	auto *algorithm = new gloo::BroadcastOneToAll<float>(context, { data.data() }, (int)data.size(), 1);

	fill(data);
	algorithm->run();
	expect(data, 1, 1);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	rank = atoi(argv[1]);
	ranks = atoi(argv[2]);
	gloo::rendezvous::FileStore store(argv[3]);
	gloo::transport::ibverbs::attr attr{ "mlx5_0", 1, atoi(argv[4]) };
	auto device = gloo::transport::ibverbs::CreateDevice(attr);
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);

	context->connectFullMesh(store, device);
	for (size_t n : { 1, 10, 1000, 100000, 1000000 }) {
		auto *data = new std::vector<float>(n);

		sum<gloo::AllreduceRing<float>>(context, *data);
		sum<gloo::AllreduceRingChunked<float>>(context, *data);
		sum<gloo::AllreduceHalvingDoubling<float>>(context, *data);
		broadcast(context, *data);
		(new gloo::BarrierAllToAll(context))->run();
	}
	printf("rank %d of %d: %ld wrong\n", rank, ranks, wrong);
	fflush(stdout);
	/* The others may still be in the barrier, and what is left here must not be destroyed under them. */
	sleep(1);
	_exit(wrong != 0);
}
