// Package sharded has a guard and a crawler on a sharded filter, which docs/sharding.md specifies.
package sharded

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
)

const (
	complete           = "filter: complete" // begins the items that are added last, without which a "no" is not believed
	pause              = time.Second        // after a failure a shard, or the descriptor, is not asked for so long
	longestTransaction = 2 * time.Second    // what Database.Insert can take: its timeout, connecting and commit included
	replicas           = 1                  // how many replicas must have a key before its row is written
	lease              = 600                // seconds that a crawler has for a page
)

// ShardOf is the shard of an item.
func ShardOf(item string, shards int) int {
	return int(uint64(crc32.ChecksumIEEE([]byte(item))) * uint64(shards) >> 32)
}

func init() {
	for _, vector := range []struct {
		item          string
		shards, shard int
	}{{"a", 8, 7}, {"user:1", 1000, 482}, {"münchen", 128, 34}} {
		if ShardOf(vector.item, vector.shards) != vector.shard {
			panic(fmt.Sprintf("ShardOf does not follow the rule: %v", vector))
		}
	}
}

// Markers has for each shard the item that marks it as complete: `filter: complete K` with the smallest K of that shard.
func Markers(shards int) []string {
	found := make([]string, shards)
	for number, missing := 0, shards; missing > 0; number++ {
		item := fmt.Sprintf("%s %d", complete, number)
		if shard := ShardOf(item, shards); found[shard] == "" {
			found[shard] = item
			missing--
		}
	}
	return found
}

// Connect makes a pool of connections to a cluster that wait for `timeout` at most, to connect and for a reply.
func Connect(nodes []string, timeout time.Duration) *redisc.Cluster {
	return &redisc.Cluster{
		StartupNodes: nodes,
		DialOptions: []redis.DialOption{redis.DialConnectTimeout(timeout),
			redis.DialReadTimeout(timeout), redis.DialWriteTimeout(timeout)},
		CreatePool: func(address string, options ...redis.DialOption) (*redis.Pool, error) {
			dial := func() (redis.Conn, error) { return redis.Dial("tcp", address, options...) }
			return &redis.Pool{MaxIdle: 100, Dial: dial}, nil
		},
	}
}

// Sends commands, which are for one key, over one connection; returns the reply to the last.
func send(cluster *redisc.Cluster, commands ...[]any) (any, error) {
	connection := cluster.Get()
	defer connection.Close()
	retry, err := redisc.RetryConn(connection, 4, 10*time.Millisecond) // follows MOVED and ASK
	var reply any
	for i := 0; i < len(commands) && err == nil; i++ {
		reply, err = retry.Do(commands[i][0].(string), commands[i][1:]...)
		if array, ok := reply.([]any); ok && len(array) > 0 {
			if inside, ok := array[len(array)-1].(redis.Error); ok { // redigo does not return an error that is inside an array
				err = inside
			}
		}
	}
	if _, ofServer := err.(redis.Error); err != nil && !ofServer {
		cluster.Refresh() // redisc does not ask by itself who has taken over from a node that is gone
	}
	return reply, err
}

type shard struct{ key, mark string }

type group struct {
	shard
	items []string
}

// A generation of shards: of each its key and the item that marks it as complete.
type shards []shard

func newShards(fields map[string]string, prefix string) (shards, error) {
	count, err := strconv.Atoi(fields[prefix+"shards"])
	if err != nil || count < 1 || count > 1024 {
		return nil, fmt.Errorf("%sshards is '%s'", prefix, fields[prefix+"shards"])
	}
	for _, name := range []string{"generation", "error", "capacity"} { // without a use here, but a hash without them is damaged
		if number, err := strconv.ParseFloat(fields[prefix+name], 64); err != nil || number <= 0 {
			return nil, fmt.Errorf("%s%s is '%s'", prefix, name, fields[prefix+name])
		}
	}
	var all shards
	for i, mark := range Markers(count) {
		key, found := fields[prefix+strconv.Itoa(i)]
		if !found {
			return nil, fmt.Errorf("field %s%d is missing", prefix, i)
		}
		all = append(all, shard{key, mark})
	}
	return all, nil
}

// The items by shard.
func (s shards) group(items []string) map[int]group {
	groups := map[int]group{}
	for _, item := range items {
		i := ShardOf(item, len(s))
		groups[i] = group{s[i], append(groups[i].items, item)}
	}
	return groups
}

type descriptor struct {
	current, next shards
	base          string
	poll          time.Duration
}

func newDescriptor(fields map[string]string) (*descriptor, error) {
	if fields["rule"] != "crc32" || fields["state"] != "ready" {
		return nil, fmt.Errorf("no filter that this client can use: rule '%s', state '%s'", fields["rule"], fields["state"])
	}
	current, err := newShards(fields, "")
	if err != nil {
		return nil, err
	}
	next, _ := newShards(fields, "next.") // there may be none, or it is half-written
	poll, err := strconv.Atoi(fields["poll"])
	if err != nil || poll < 1 {
		poll = 10
	}
	return &descriptor{current, next, fields["base"], time.Duration(poll) * time.Second}, nil
}

// Whether an error may come from a descriptor that is out of date.
func isStale(err error) bool {
	for _, text := range []string{"WRONGTYPE", "belongs to shard", "not found"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// Filter is a sharded filter. Goroutines may share it.
type Filter struct {
	name           string
	reader, writer *redisc.Cluster
	mutex          sync.Mutex // of what follows
	descriptor     *descriptor
	readAt         time.Time
	resumeAt       map[string]time.Time // by key: when it may be asked again
	failures       int
}

// New takes the name of the filter, Connect(nodes, 100*time.Millisecond) and Connect(nodes, time.Second).
func New(name string, reader, writer *redisc.Cluster) *Filter {
	return &Filter{name: name, reader: reader, writer: writer, resumeAt: map[string]time.Time{}}
}

// Failures is how often the filter gave no answer: a metric to watch.
func (f *Filter) Failures() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.failures
}

// Ask says of each item whether it is in the filter. An item without an answer is not in the map.
func (f *Filter) Ask(items []string) map[string]bool {
	answers := map[string]bool{}
	if stale := f.askOnce(items, answers, -1, false); len(stale) > 0 { // the filter was rebuilt
		f.askOnce(stale, answers, 0, true)
	}
	return answers
}

// Puts answers into `answers`; returns the items to ask again, with a descriptor that is read again.
func (f *Filter) askOnce(items []string, answers map[string]bool, age time.Duration, again bool) (stale []string) {
	descriptor, err := f.lastRead(), error(nil)
	if f.mayAsk(f.name) {
		if descriptor, err = f.read(f.reader, age); err != nil {
			f.fail(f.name, err)
			descriptor = f.lastRead() // its shards answer for themselves
		}
	}
	if descriptor == nil {
		return nil
	}
	for _, group := range descriptor.current.group(items) {
		stale = append(stale, f.askFilter(group, answers, again)...)
	}
	absent := group{shard: shard{descriptor.base, complete}}
	for _, item := range items {
		if found, known := answers[item]; known && !found {
			absent.items = append(absent.items, item)
		}
	}
	if descriptor.base != "" && len(absent.items) > 0 {
		stale = append(stale, f.askFilter(absent, answers, again)...)
	}
	return stale
}

func (f *Filter) askFilter(group group, answers map[string]bool, again bool) (stale []string) {
	for _, item := range group.items {
		delete(answers, item)
	}
	if !f.mayAsk(group.key) {
		return nil
	}
	command := redis.Args{"BF.MEXISTS", group.key}.AddFlat(group.items).Add(group.mark)
	found, err := redis.Ints(send(f.reader, command))
	if err != nil {
		if !again && isStale(err) {
			return group.items
		}
		f.fail(group.key, err)
		return nil
	}
	isComplete := found[len(group.items)] == 1
	for i, item := range group.items {
		if found[i] == 1 || isComplete {
			answers[item] = found[i] == 1
		}
	}
	if !isComplete {
		f.fail(group.key, errors.New("it is lost, or not complete"))
	}
	return nil
}

// Add adds items; returns the `poll` of the descriptor that says where. On an error some may be missing: try again.
func (f *Filter) Add(items []string, replicas int) (time.Duration, error) {
	poll, err := f.addOnce(items, replicas, -1)
	if err != nil && isStale(err) {
		return f.addOnce(items, replicas, 0)
	}
	return poll, err
}

func (f *Filter) addOnce(items []string, replicas int, age time.Duration) (time.Duration, error) {
	descriptor, err := f.read(f.writer, age)
	if err != nil {
		return 0, err
	}
	for _, shards := range []shards{descriptor.current, descriptor.next} {
		if shards == nil {
			continue
		}
		for _, group := range shards.group(items) {
			insert := redis.Args{"BF.INSERT", group.key, "NOCREATE", "ITEMS"}.AddFlat(group.items)
			if replicas == 0 {
				if _, err := send(f.writer, insert); err != nil {
					return 0, err
				}
			} else if got, err := redis.Int(send(f.writer, insert, []any{"WAIT", replicas, 500})); err != nil || got < replicas {
				if err == nil {
					err = errors.New("too few replicas have the items")
				}
				return 0, err
			}
		}
	}
	return descriptor.poll, nil
}

// The descriptor, read again if the one that is here is older than `age`, or if that is negative, than its `poll`.
func (f *Filter) read(cluster *redisc.Cluster, age time.Duration) (*descriptor, error) {
	now := time.Now()
	f.mutex.Lock()
	last, readAt := f.descriptor, f.readAt
	f.mutex.Unlock()
	if last != nil && age < 0 {
		age = last.poll
	}
	if last != nil && now.Sub(readAt) < age {
		return last, nil
	}
	fields, err := redis.StringMap(send(cluster, []any{"HGETALL", f.name}))
	if err != nil {
		return nil, err
	}
	descriptor, err := newDescriptor(fields)
	f.mutex.Lock()
	f.descriptor, f.readAt = descriptor, now // nil if the new one cannot be used: the old one must not be
	f.mutex.Unlock()
	return descriptor, err
}

func (f *Filter) lastRead() *descriptor {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.descriptor
}

func (f *Filter) mayAsk(key string) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return time.Now().After(f.resumeAt[key])
}

// Notes that a key gave no answer, and leaves it alone for a while.
func (f *Filter) fail(key string, err error) {
	f.mutex.Lock()
	f.failures++
	f.resumeAt[key] = time.Now().Add(pause)
	f.mutex.Unlock()
	log.Printf("%s gave no answer: %v", key, err)
}

// Database is what the guard stands in front of.
type Database interface {
	Get(key string) (value string, found bool, err error)
	Insert(key, value string) error
}

// Guard asks the database only for keys that the filter has, or gives no answer for.
type Guard struct {
	Filter   *Filter
	Database Database
}

// Lookup finds the row of a key.
func (g *Guard) Lookup(key string) (value string, found bool, err error) {
	if inFilter, known := g.Filter.Ask([]string{key})[key]; known && !inFilter {
		return "", false, nil
	}
	return g.Database.Get(key)
}

// Insert adds the key to the filter, then the row to the database. On an error the row may be missing: try again.
func (g *Guard) Insert(key, value string) error {
	begin := time.Now()
	poll, err := g.Filter.Add([]string{key}, replicas)
	if err != nil {
		return err
	}
	if time.Since(begin) > poll-longestTransaction {
		return errors.New("the filter took so long that a rebuild may miss the row")
	}
	return g.Database.Insert(key, value)
}

// Crawler claims pages that nobody has fetched, as docs/recipes/crawler.md does on a filter in one key.
type Crawler struct {
	Filter *Filter
	Claims *redisc.Cluster // Connect(nodes, time.Second)
}

// Claim says which of the URLs are the caller's to fetch, for the time of the lease, and which to offer again later.
func (c *Crawler) Claim(urls []string) (fetch, later []string) {
	var mine []string
	for _, url := range urls {
		reply, err := send(c.Claims, []any{"SET", "claim:" + url, "mine", "NX", "EX", lease})
		if err != nil {
			later = append(later, url)
		} else if reply != nil {
			mine = append(mine, url)
		}
	}
	answers := c.Filter.Ask(mine) // after the claim: whoever ends one has marked the page before
	for _, url := range mine {
		found, known := answers[url]
		if known && !found {
			fetch = append(fetch, url)
			continue
		}
		if !known {
			later = append(later, url)
		}
		c.release(url)
	}
	return fetch, later
}

// Fetched marks a page after it was fetched and its results are stored. On an error, try again within the lease.
func (c *Crawler) Fetched(url string) error {
	if _, err := c.Filter.Add([]string{url}, 0); err != nil {
		return err
	}
	c.release(url)
	return nil
}

func (c *Crawler) release(url string) {
	send(c.Claims, []any{"UNLINK", "claim:" + url}) // if it fails: the claim ends by itself after the lease
}
