// Asynq on Redis: 10 tasks at a time; drain: 100; finished tasks are deleted.
package main

import (
	"context"
	"encoding/binary"
	"math"
	"os"

	"github.com/hibiken/asynq"

	"peers/verbs"
)

func address() asynq.RedisConnOpt {
	found, err := asynq.ParseRedisURI(os.Getenv("BENCH_DSN"))
	if err != nil {
		panic(err)
	}
	return found
}

func task(sent float64) *asynq.Task {
	return asynq.NewTask("first_line", binary.LittleEndian.AppendUint64(nil, math.Float64bits(sent)))
}

func prepare(context.Context) error { return asynq.NewClient(address()).Ping() }

func work(ctx context.Context, mode string) error {
	concurrency := map[string]int{"latency": 10, "drain": 100}[mode]
	server := asynq.NewServer(address(), asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel})
	handle := func(_ context.Context, task *asynq.Task) error {
		at := verbs.Now()
		verbs.Record(math.Float64frombits(binary.LittleEndian.Uint64(task.Payload())), at)
		return nil
	}
	if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func connect(context.Context, int) (*verbs.Client, error) {
	client := asynq.NewClient(address())
	one := func(ctx context.Context, sent float64) error {
		_, err := client.EnqueueContext(ctx, task(sent))
		return err
	}
	many := func(ctx context.Context, count int) error {
		for range count {
			if err := one(ctx, verbs.Now()); err != nil {
				return err
			}
		}
		return nil
	}
	return &verbs.Client{One: one, Many: many}, nil
}

func main() { verbs.Main(verbs.Peer{Prepare: prepare, Work: work, Connect: connect}) }
