// Runs the guard and the crawler for tests/clients/python/test_sharded.py; sharded_worker.py there says what it reads and prints.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"../sharded"
)

type database struct {
	rows  map[string]string
	keys  []string // in the order of their inserts
	asked int
}

func (d *database) Get(key string) (string, bool, error) {
	d.asked++
	value, found := d.rows[key]
	return value, found, nil
}

func (d *database) Insert(key, value string) error {
	if _, found := d.rows[key]; !found {
		d.keys = append(d.keys, key)
	}
	d.rows[key] = value
	return nil
}

type worker struct {
	database *database
	guard    *sharded.Guard
	crawler  *sharded.Crawler
	idle     bool
	rounds   int
}

func newWorker(node, name string, idle bool) *worker {
	rows := &database{rows: map[string]string{}}
	for i := 0; i < 2000; i++ {
		rows.Insert(fmt.Sprintf("user:%d", i), "name")
	}
	nodes := []string{node}
	filter := sharded.New(name, sharded.Connect(nodes, time.Second/2), sharded.Connect(nodes, time.Second))
	crawler := &sharded.Crawler{Filter: filter, Claims: sharded.Connect(nodes, time.Second)}
	return &worker{database: rows, guard: &sharded.Guard{Filter: filter, Database: rows}, crawler: crawler, idle: idle}
}

func (w *worker) run(command string, words []string) (string, error) {
	switch command {
	case "lookup":
		var found []string
		for _, key := range words {
			found = append(found, w.lookup(key))
		}
		return strings.Join(found, " "), nil
	case "insert":
		return "ok", w.guard.Insert(words[0], "inserted")
	case "claim":
		seen, urls := map[string]bool{}, []string{}
		for _, url := range words {
			if !seen[url] {
				urls = append(urls, url)
			}
			seen[url] = true
		}
		fetch, later := w.crawler.Claim(urls)
		return fmt.Sprintf("new %s later %s", strings.Join(fetch, ","), strings.Join(later, ",")), nil
	case "fetched":
		return "ok", w.crawler.Fetched(words[0])
	case "keys":
		return strings.Join(w.database.keys, " "), nil
	default:
		return w.round(), nil
	}
}

func (w *worker) lookup(key string) string {
	asked, text := w.database.asked, "none"
	if _, found, _ := w.guard.Lookup(key); found {
		text = "row"
	}
	return text + strings.Repeat("?", w.database.asked-asked)
}

func (w *worker) round() string {
	w.rounds++
	if err := w.guard.Insert(fmt.Sprintf("go:%d", w.rounds), "inserted"); err != nil {
		log.Print("not inserted: ", err)
	}
	keys := w.database.keys
	present := []string{keys[len(keys)-1]}
	for i := 0; i < 4; i++ {
		present = append(present, keys[(w.rounds*4+i)%len(keys)])
	}
	for _, key := range present {
		if _, found, _ := w.guard.Lookup(key); !found {
			return "hidden " + key
		}
	}
	asked := w.database.asked
	for i := 0; i < 5; i++ {
		w.guard.Lookup(fmt.Sprintf("absent:%d:%d", w.rounds, i))
	}
	return fmt.Sprintf("%d %d", w.database.asked-asked, w.guard.Filter.Failures())
}

func main() {
	node := strings.TrimPrefix(os.Args[1], "redis://")
	var one *worker
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		answer, err := "ok", error(nil)
		switch command := words[0]; {
		case command == "use":
			one = newWorker(node, words[1], len(words) > 2)
		case command == "shard":
			shards, _ := strconv.Atoi(words[1])
			var all []string
			for _, item := range words[2:] {
				all = append(all, strconv.Itoa(sharded.ShardOf(item, shards)))
			}
			answer = strings.Join(all, " ")
		case command == "markers":
			shards, _ := strconv.Atoi(words[1])
			answer = strings.Join(sharded.Markers(shards), ",")
		case one == nil || one.idle && command == "round":
			answer = "0 0"
		default:
			answer, err = one.run(command, words[1:])
		}
		if err != nil {
			answer = "raised " + err.Error()
		}
		fmt.Println(answer)
	}
}
