// River: pgx, LISTEN/NOTIFY; finished jobs are kept. Drain: 2,000 jobs at a time, fetched every 2 ms, as its own bench.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"peers/verbs"
)

type firstLine struct {
	Sent float64 `json:"sent"`
}

func (firstLine) Kind() string { return "first_line" }

type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type due struct{}

func (due) Kind() string { return "due" }

func pool(ctx context.Context, most int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(os.Getenv("BENCH_DSN"))
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(most)
	return pgxpool.NewWithConfig(ctx, config)
}

func prepare(ctx context.Context) error {
	connections, err := pool(ctx, 2)
	if err != nil {
		return err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(connections), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func work(ctx context.Context, mode string) error {
	connections, err := pool(ctx, 10)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[firstLine]) error {
		at := verbs.Now()
		verbs.Record(job.Args.Sent, at)
		return nil
	}))
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[nothing]) error {
		verbs.RecordFirst()
		return nil
	}))
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[due]) error {
		verbs.Record(1, verbs.Now())
		return nil
	}))
	config := &river.Config{
		Logger:        slog.New(slog.DiscardHandler),
		Workers:       workers,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		FetchCooldown: river.FetchCooldownMin,
	}
	if mode == "drain" {
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	client, err := river.NewClient(riverpgxv5.New(connections), config)
	if err != nil {
		return err
	}
	if err := client.Start(context.Background()); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.Background())
}

func connect(ctx context.Context, count int) (*verbs.Client, error) {
	connections, err := pool(ctx, count)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient[pgx.Tx](riverpgxv5.New(connections), &river.Config{})
	if err != nil {
		return nil, err
	}
	many := func(ctx context.Context, n int, each river.InsertManyParams) error {
		params := make([]river.InsertManyParams, n)
		for i := range params {
			params[i] = each
		}
		_, err := client.InsertManyFast(ctx, params)
		return err
	}
	return &verbs.Client{
		One: func(ctx context.Context, sent float64) error {
			_, err := client.Insert(ctx, firstLine{sent}, nil)
			return err
		},
		Many: func(ctx context.Context, n int) error { return many(ctx, n, river.InsertManyParams{Args: nothing{}}) },
		Later: func(ctx context.Context, n int, at time.Time) error {
			return many(ctx, n, river.InsertManyParams{Args: due{}, InsertOpts: &river.InsertOpts{ScheduledAt: at}})
		},
	}, nil
}

func main() { verbs.Main(verbs.Peer{Prepare: prepare, Work: work, Connect: connect}) }
