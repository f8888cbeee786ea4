// Package verbs is the command line of verbs.py for peers in Go.
package verbs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	warmUp = -1.0 // the moment that a job carries if it is not to be counted
	first  = 5    // submissions for each in flight that open connections and are not timed
)

// Peer is a job queue. One submits a job that carries its moment; Many submits so many at once, or is nil; Later
// submits so many that become due at an instant, or is nil.
type Peer struct {
	Prepare func(ctx context.Context) error
	Work    func(ctx context.Context, mode string) error
	Connect func(ctx context.Context, connections int) (*Client, error)
}

type Client struct {
	One   func(ctx context.Context, sent float64) error
	Many  func(ctx context.Context, count int) error
	Later func(ctx context.Context, count int, due time.Time) error
}

var output struct {
	once sync.Once
	file *os.File
}

// Now is the time in seconds.
func Now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

// Record appends when a job was submitted and when its function began.
func Record(sent, at float64) {
	output.once.Do(func() {
		file, err := os.OpenFile(os.Getenv("BENCH_FILE"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		fail(err)
		output.file = file
	})
	fmt.Fprintf(output.file, "%.6f %.6f\n", sent, at)
}

// RecordFirst appends the moment of this process's first call.
func RecordFirst() { recordOnce.Do(func() { Record(Now(), Now()) }) }

var recordOnce sync.Once

// Main runs the verb of the command line.
func Main(peer Peer) {
	ctx := context.Background()
	verb, rest := os.Args[1], os.Args[2:]
	switch verb {
	case "prepare":
		fail(peer.Prepare(ctx))
		return
	case "work":
		stopped, cancel := signal.NotifyContext(ctx, syscall.SIGTERM)
		defer cancel()
		fail(peer.Work(stopped, rest[0]))
		return
	}
	var n []int
	for _, word := range rest {
		number, err := strconv.Atoi(word)
		fail(err)
		n = append(n, number)
	}
	connections := map[string]int{"singles": n[1], "latency": 4}[verb]
	client, err := peer.Connect(ctx, max(1, connections))
	fail(err)
	switch verb {
	case "latency":
		latency(ctx, client, n[0], n[1], n[2])
	case "singles":
		inFlight(ctx, client, first*n[1], n[1])
		rate(n[0], func() { inFlight(ctx, client, n[0], n[1]) })
	case "bulk":
		rate(n[0], func() {
			for start := 0; start < n[0]; start += n[1] {
				fail(client.Many(ctx, min(n[1], n[0]-start)))
			}
		})
	case "later":
		due := time.Unix(int64(n[2]), 0)
		for start := 0; start < n[0]; start += n[1] {
			fail(client.Later(ctx, min(n[1], n[0]-start), due))
		}
	}
}

func latency(ctx context.Context, client *Client, n, warm, perSecond int) {
	fail(client.One(ctx, warmUp))
	untilRecorded()
	paced(ctx, client, warm, perSecond, false)
	fmt.Println("begin")
	before := cpu()
	paced(ctx, client, n, perSecond, true)
	print(map[string]float64{"cpu_s": cpu() - before})
}

func paced(ctx context.Context, client *Client, n, perSecond int, counted bool) {
	begin := time.Now().Add(100 * time.Millisecond)
	var all sync.WaitGroup
	for number := range n {
		time.Sleep(time.Until(begin.Add(time.Duration(number) * time.Second / time.Duration(perSecond))))
		all.Go(func() {
			sent := warmUp
			if counted {
				sent = Now()
			}
			fail(client.One(ctx, sent))
		})
	}
	all.Wait()
}

func inFlight(ctx context.Context, client *Client, n, at int) {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range at {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				fail(client.One(ctx, Now()))
			}
		})
	}
	all.Wait()
}

func untilRecorded() {
	for range 6000 {
		data, _ := os.ReadFile(os.Getenv("BENCH_FILE"))
		if bytes.Contains(data, []byte("\n")) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fail(fmt.Errorf("the worker did not execute the first job within a minute"))
}

func rate(n int, work func()) {
	begun := time.Now()
	work()
	print(map[string]float64{"per_s": float64(n) / time.Since(begun).Seconds()})
}

func print(found map[string]float64) {
	line, err := json.Marshal(found)
	fail(err)
	fmt.Println(string(line))
}

func cpu() float64 {
	var used syscall.Rusage
	fail(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
