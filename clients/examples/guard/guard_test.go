package guard

import (
	"os"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

type table map[string]string

func (t table) Get(key string) (string, bool, error) {
	value, found := t[key]
	return value, found, nil
}

func (t table) Insert(key, value string) error {
	t[key] = value
	return nil
}

func (t table) Keys() ([]string, error) {
	var keys []string
	for key := range t {
		keys = append(keys, key)
	}
	return keys, nil
}

// Of many connections that the server closed, one fails: the pool has dropped the others when the pause is over.
func TestConnectionsFromBeforeAFailureAreNotUsed(t *testing.T) {
	url, rows := os.Getenv("REDIS_URL"), table{"row": "value"}
	if err := Build(url, rows, 0); err != nil {
		t.Fatal(err)
	}
	reader := Connect(url, time.Second)
	guard := New(reader, reader, rows)
	var idle []redis.Conn
	for i := 0; i < 20; i++ {
		idle = append(idle, reader.Get())
	}
	for _, conn := range idle {
		conn.Close()
	}
	admin, err := redis.DialURL(url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Do("CLIENT", "KILL", "TYPE", "normal"); err != nil {
		t.Fatal(err)
	}
	for i, failures := range []int64{1, 1} {
		_, present, _ := guard.Lookup("row")
		_, absent, _ := guard.Lookup("no row")
		if !present || absent || guard.Failures.Load() != failures {
			t.Fatal(i, present, absent, guard.Failures.Load())
		}
		time.Sleep(pause)
	}
}
