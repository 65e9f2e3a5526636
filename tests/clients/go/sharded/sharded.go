// Package sharded has a guard and a crawler on a sharded filter, which docs/sharding.md specifies.
package sharded

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"math"
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
type generation struct {
	number int64
	shards []shard
}

func newGeneration(fields map[string]string, prefix string) (generation, error) {
	var wrong error
	number := func(name string, most int64) int64 {
		value, err := strconv.ParseInt(fields[prefix+name], 10, 64)
		if err != nil || value < 1 || value > most {
			wrong = fmt.Errorf("%s%s is '%s'", prefix, name, fields[prefix+name])
		}
		return value
	}
	count := number("shards", 1024)
	result := generation{number: number("generation", math.MaxInt64)}
	number("capacity", math.MaxInt64) // these two have no use here, but a hash without them is damaged
	if rate, err := strconv.ParseFloat(fields[prefix+"error"], 64); err != nil || !(rate > 0 && rate < 1) {
		wrong = fmt.Errorf("%serror is '%s'", prefix, fields[prefix+"error"])
	}
	if wrong != nil {
		return generation{}, wrong
	}
	for i, mark := range Markers(int(count)) {
		key, found := fields[prefix+strconv.Itoa(i)]
		if !found {
			return generation{}, fmt.Errorf("field %s%d is missing", prefix, i)
		}
		result.shards = append(result.shards, shard{key, mark})
	}
	return result, nil
}

// The items by shard.
func (g generation) group(items []string) map[int]group {
	groups := map[int]group{}
	for _, item := range items {
		i := ShardOf(item, len(g.shards))
		groups[i] = group{g.shards[i], append(groups[i].items, item)}
	}
	return groups
}

type descriptor struct {
	current, next generation
	isRebuilt     bool  // next is the generation before the current one, which old clients ask until its shards are gone
	damage        error // why nothing may be added
	base          string
	poll          time.Duration
	readAt        time.Time
}

func newDescriptor(fields map[string]string) (*descriptor, error) {
	if fields["rule"] != "crc32" || fields["state"] != "ready" {
		return nil, fmt.Errorf("no filter that this client can use: rule '%s', state '%s'", fields["rule"], fields["state"])
	}
	current, err := newGeneration(fields, "")
	if err != nil {
		return nil, err
	}
	result := descriptor{current: current, base: fields["base"], poll: 10 * time.Second}
	for field := range fields {
		if !strings.HasPrefix(field, "next.") {
			continue
		}
		if rule, found := fields["next.rule"]; found && rule != "crc32" {
			err = fmt.Errorf("next.rule is '%s'", rule)
		} else {
			result.next, err = newGeneration(fields, "next.")
		}
		if err != nil { // a rebuild might lose what is added now
			result.damage = fmt.Errorf("the next generation cannot be read: %w", err)
		}
		result.isRebuilt = err == nil && result.next.number < current.number
		break
	}
	if poll, err := strconv.Atoi(fields["poll"]); err == nil && poll > 0 {
		result.poll = time.Duration(poll) * time.Second
	}
	return &result, nil
}

// Whoever rebuilds the filter counts on every addition to be done by then.
func (d *descriptor) checkAge() error {
	if time.Since(d.readAt) > 2*d.poll {
		return errTooOld
	}
	return nil
}

var errTooOld = errors.New("the descriptor is too old")

// Whether a filter is gone: lost, or an old shard after a rebuild.
func isGone(err error) bool {
	return strings.Contains(err.Error(), "WRONGTYPE") || strings.Contains(err.Error(), "not found")
}

// Whether an error may come from a descriptor that is out of date.
func isStale(err error) bool {
	return isGone(err) || strings.Contains(err.Error(), "belongs to shard") || err == errTooOld
}

// Filter is a sharded filter. Goroutines may share it.
type Filter struct {
	name           string
	reader, writer *redisc.Cluster
	mutex          sync.Mutex // of what follows
	descriptor     *descriptor
	readAt         time.Time            // also if that descriptor cannot be used
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
	if descriptor.damage != nil {
		return 0, descriptor.damage
	}
	for i, generation := range []generation{descriptor.current, descriptor.next} {
		if generation.shards == nil {
			continue
		}
		for _, group := range generation.group(items) {
			if err := descriptor.checkAge(); err != nil {
				return 0, err
			}
			err := f.insert(group, replicas)
			if err != nil && i == 1 && descriptor.isRebuilt && isGone(err) {
				err = nil // an old shard is gone, and the current ones have the items
			}
			if err != nil {
				return 0, err
			}
		}
	}
	return descriptor.poll, descriptor.checkAge()
}

func (f *Filter) insert(group group, replicas int) error {
	insert := redis.Args{"BF.INSERT", group.key, "NOCREATE", "ITEMS"}.AddFlat(group.items)
	if replicas == 0 {
		_, err := send(f.writer, insert)
		return err
	}
	// WAIT waits for what its connection has written, and BF.INSERT writes nothing if the filter has the items.
	write := []any{"SET", strings.Split(group.key, "}")[0] + "}:wait", 1, "EX", 60}
	got, err := redis.Int(send(f.writer, insert, write, []any{"WAIT", replicas, 500}))
	if err == nil && got < replicas {
		err = errors.New("too few replicas have the items")
	}
	return err
}

// The descriptor, read again if the one that is here is older than `age`, or if that is negative, than its `poll`.
func (f *Filter) read(cluster *redisc.Cluster, age time.Duration) (*descriptor, error) {
	now := time.Now()
	last := f.lastRead()
	if last != nil && age < 0 {
		age = last.poll
	}
	if last != nil && now.Sub(last.readAt) < age {
		return last, nil
	}
	fields, err := redis.StringMap(send(cluster, []any{"HGETALL", f.name}))
	if err != nil {
		return nil, err
	}
	descriptor, err := newDescriptor(fields)
	if err == nil {
		descriptor.readAt = now
	}
	f.mutex.Lock()
	if !now.Before(f.readAt) { // else another goroutine has read a newer one meanwhile
		f.descriptor, f.readAt = descriptor, now // nil if the new one cannot be used: the old one must not be
	}
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
