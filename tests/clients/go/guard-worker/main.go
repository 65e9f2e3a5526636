// Runs the guard for tests/clients/python/test_guard.py; guard_worker.py there says what this program reads and prints.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"../../../../clients/examples/guard"
	"github.com/gomodule/redigo/redis"
)

const newFilter = "guard:{users}:new"

// What `build` is broken with: commands before the keys are read.
var breaks = map[string][][]any{
	"lost": {{"UNLINK", newFilter}},
	"anew": {{"UNLINK", newFilter}, {"BF.RESERVE", newFilter, 0.001, 120_000}},
	"cut":  {{"CLIENT", "KILL", "TYPE", "normal"}},
}

type database struct {
	pool     *redis.Pool
	rows     map[string]string
	keys     []string // in the order of their inserts
	asked    int      // how often an absent row was asked for
	commands [][]any
}

func (d *database) Get(key string) (string, bool, error) {
	if strings.HasPrefix(key, "absent") {
		d.asked++
	}
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

func (d *database) Keys() ([]string, error) {
	conn := d.pool.Get()
	defer conn.Close()
	for _, words := range d.commands {
		if _, err := conn.Do(words[0].(string), words[1:]...); err != nil {
			return nil, err
		}
	}
	return d.keys, nil
}

// Five lookups of rows that exist and twenty of rows that do not.
func round(g *guard.Guard, d *database, number int) (string, error) {
	before := d.asked
	present := []string{d.keys[len(d.keys)-1]}
	for i := 0; i < 4; i++ {
		present = append(present, d.keys[(number*4+i)%len(d.keys)])
	}
	hidden := ""
	for _, key := range present {
		if _, found, _ := g.Lookup(key); !found {
			hidden += " " + key
		}
	}
	for i := 0; i < 20; i++ {
		if _, found, _ := g.Lookup(fmt.Sprintf("absent:%d:%d", number, i)); found {
			return "", errors.New("found what is not there")
		}
	}
	if hidden != "" {
		return "hidden" + hidden, nil
	}
	return fmt.Sprint(d.asked-before, " ", g.Failures.Load()), nil
}

func main() {
	url := os.Args[1]
	d := &database{pool: guard.Connect(url, 10*time.Second), rows: map[string]string{}}
	for i := 0; i < 2000; i++ {
		d.Insert(fmt.Sprint("user:", i), fmt.Sprint("name ", i))
	}
	g := guard.New(guard.Connect(url, 100*time.Millisecond), guard.Connect(url, time.Second), d)
	lines := bufio.NewScanner(os.Stdin)
	for number := 0; lines.Scan(); number++ {
		command, key, _ := strings.Cut(lines.Text(), " ")
		answer, err := "ok", error(nil)
		switch command {
		case "build":
			d.commands = breaks[key]
			err = guard.Build(url, d, 0)
		case "insert":
			err = g.Insert(key, "inserted "+key)
		default:
			answer, err = round(g, d, number)
		}
		if err != nil {
			answer = "raised " + err.Error()
		}
		fmt.Println(answer)
	}
}
