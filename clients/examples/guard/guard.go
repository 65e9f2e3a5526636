// Package guard is a guard in front of a database: a Bloom filter of all keys, asked before the database is.
// A lookup never fails because of the filter, and never hides a row that exists.
// An example: docs/guide/guard.md says what it does not do.
package guard

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	filter             = "guard:{users}" // {users}: RENAME needs both names in one slot
	newFilter          = "guard:{users}:new"
	complete           = "guard: complete" // the item that a build adds last: without it a filter is not believed
	errorRate          = 0.001
	capacity           = 120_000
	batch              = 1000
	pause              = time.Second     // how long only the database is asked after a failure
	LongestInsert      = 5 * time.Second // Insert takes at most this long: Build waits that long
	longestTransaction = 2 * time.Second // the part of LongestInsert for Database.Insert: its timeout, connecting and commit included
)

// Completes a filter and puts it in the place of the old one, in one step. Only a filter that has the items of this
// build is completed: another build may have begun a new filter under the same name.
const finish = `
local own = redis.call('BF.MEXISTS', KEYS[1], unpack(ARGV, 2))
for _, found in ipairs(own) do
  if found == 0 then
    return redis.error_reply('ERR the new filter is lost, or another build has begun')
  end
end
redis.call('BF.ADD', KEYS[1], ARGV[1])
return redis.call('RENAME', KEYS[1], KEYS[2])
`

// Database is what the guard stands in front of.
type Database interface {
	Get(key string) (value string, found bool, err error)
	Insert(key, value string) error
	Keys() ([]string, error)
}

// Connect makes a pool of connections that wait for `timeout` at most, to connect and for a reply, and try once.
func Connect(url string, timeout time.Duration) *redis.Pool {
	return &redis.Pool{
		MaxIdle: 100,
		// Shorter than the pause after a failure: then no connection from before it is used again.
		IdleTimeout: pause / 2,
		Dial: func() (redis.Conn, error) {
			return redis.DialURL(url, redis.DialConnectTimeout(timeout),
				redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout))
		},
	}
}

// Guard may be used by any number of goroutines.
type Guard struct {
	Failures atomic.Int64 // how often the filter gave no answer: a metric to watch
	reader   *redis.Pool
	writer   *redis.Pool
	database Database
	resumeAt atomic.Value // a time.Time
}

// New makes a guard; the pools are Connect(url, 100*time.Millisecond) and Connect(url, time.Second).
func New(reader, writer *redis.Pool, database Database) *Guard {
	return &Guard{reader: reader, writer: writer, database: database}
}

// Lookup returns the row of the key. It asks the database unless the filter says that there is no such row.
func (g *Guard) Lookup(key string) (value string, found bool, err error) {
	if g.isAbsent(key) {
		return "", false, nil
	}
	return g.database.Get(key)
}

// Whether the row certainly does not exist; false also if the filter cannot tell.
func (g *Guard) isAbsent(key string) bool {
	if at, ok := g.resumeAt.Load().(time.Time); ok && time.Now().Before(at) {
		return false
	}
	conn := g.reader.Get()
	defer conn.Close()
	found, err := redis.Ints(conn.Do("BF.MEXISTS", filter, key, complete))
	if err == nil && found[1] == 1 {
		return found[0] == 0
	}
	if err == nil {
		err = errors.New("there is no complete filter")
	}
	g.Failures.Add(1)
	g.resumeAt.Store(time.Now().Add(pause))
	log.Print("the filter gave no answer: ", err) // whatever it is, the database is asked
	return false
}

// Insert adds the key to the filters, then the row to the database. On an error the row may be missing: try again.
func (g *Guard) Insert(key, value string) error {
	begin := time.Now() // before the first filter is asked, because Build waits from there on
	conn := g.writer.Get()
	defer conn.Close()
	for _, name := range []string{newFilter, filter} { // in this order, because Build renames the first to the second
		err := add(conn, name, []string{key})
		if err != nil && err != redis.Error("ERR not found") { // a filter that does not exist needs no key
			return err
		}
	}
	if time.Since(begin) > LongestInsert-longestTransaction {
		return errors.New("the filters took so long that a build may miss the row")
	}
	return g.database.Insert(key, value)
}

// Build fills a new filter with all keys and puts it in the place of the old one. On an error the old one stays.
// `wait` is LongestInsert.
func Build(url string, database Database, wait time.Duration) error {
	pool := Connect(url, 10*time.Second)
	defer pool.Close()
	// All on one connection, which breaks if the server restarts in the meantime, perhaps from an older snapshot.
	conn := pool.Get()
	defer conn.Close()
	if _, err := conn.Do("UNLINK", newFilter); err != nil {
		return err
	}
	if _, err := conn.Do("BF.RESERVE", newFilter, errorRate, capacity); err != nil {
		return err
	}
	unique := make([]byte, 16)
	if _, err := rand.Read(unique); err != nil {
		return err
	}
	var thisBuild []string
	for n := 1; n <= 3; n++ { // three: all of them are hardly ever found by chance
		thisBuild = append(thisBuild, fmt.Sprintf("guard: build %x %d", unique, n))
	}
	if err := add(conn, newFilter, thisBuild); err != nil {
		return err
	}
	time.Sleep(wait) // from here on, each row is in the keys or its Insert has found newFilter
	keys, err := database.Keys()
	if err != nil {
		return err
	}
	for len(keys) > 0 {
		count := len(keys)
		if count > batch {
			count = batch
		}
		if err := add(conn, newFilter, keys[:count]); err != nil {
			return err
		}
		keys = keys[count:]
	}
	_, err = conn.Do("EVAL", redis.Args{finish, 2, newFilter, filter, complete}.AddFlat(thisBuild)...)
	return err
}

// Adds items to a filter that exists: NOCREATE, since one with these items only would hide all others.
func add(conn redis.Conn, name string, items []string) error {
	answers, err := redis.Values(conn.Do("BF.INSERT", redis.Args{name, "NOCREATE", "ITEMS"}.AddFlat(items)...))
	if err != nil {
		return err
	}
	if failed, ok := answers[len(answers)-1].(redis.Error); ok { // redigo does not return an error that is inside an array
		return failed
	}
	return nil
}
