// The two Go clients of Eclipse Paho on every feature that they have: paho.mqtt.golang for 3.1 and 3.1.1 (v3.go),
// paho.golang for 5.0 (v5.go). Usage: goclient PORT
//
// Each feature is a function that panics (by `check`) when the broker does not do its part. The outcome is one
// JSON object on standard output: feature → null, or the error's text.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// As long as that of the Python tests.
const deadline = time.Minute

type feature struct {
	name string
	run  func(*test)
}

// What a feature gets: a name of its own, and what to end behind it.
type test struct {
	name    string
	closing []func()
}

func (t *test) after(f func()) { t.closing = append(t.closing, f) }

func check(good bool, format string, args ...any) {
	if !good {
		panic(fmt.Sprintf(format, args...))
	}
}

func must(err error) { check(err == nil, "%v", err) }

// receive takes the next value, or fails at the deadline.
func receive[T any](from <-chan T, what string) T {
	select {
	case got := <-from:
		return got
	case <-time.After(deadline):
		panic("no " + what + " in time")
	}
}

var number atomic.Int64

func run(f feature) (outcome *string) {
	t := &test{name: fmt.Sprintf("go%dx%d", os.Getpid(), number.Add(1))}
	defer func() {
		if failure := recover(); failure != nil {
			text := fmt.Sprint(failure)
			outcome = &text
		}
		for _, end := range t.closing {
			end()
		}
	}()
	f.run(t)
	return nil
}

func main() {
	address := "127.0.0.1:" + os.Args[1]
	features := append(v3Features(address), v5Features(address)...)
	outcome := map[string]*string{}
	var lock sync.Mutex
	var workers sync.WaitGroup
	queue := make(chan feature)
	// A few at a time: most of them wait.
	for range 6 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for f := range queue {
				got := run(f)
				lock.Lock()
				outcome[f.name] = got
				lock.Unlock()
			}
		}()
	}
	for _, f := range features {
		queue <- f
	}
	close(queue)
	workers.Wait()
	must(json.NewEncoder(os.Stdout).Encode(outcome))
}
