// Loads items in packed batches with redigo: an example of docs/guide/load.md.
package main

import (
	"fmt"
	"log"
	"math/bits"
	"os"
	"strconv"

	"github.com/gomodule/redigo/redis"
)

const batch = 10_000

// Sends a packed batch. Returns the number of items that were answered, and their answers as a string of bits.
func bulk(conn redis.Conn, words ...any) (int, []byte, error) {
	reply, err := redis.Values(conn.Do(words[0].(string), words[1:]...))
	if err != nil {
		return 0, nil, err
	}
	if len(reply) > 2 { // the filter is full, or there is no memory: the first items are in
		return int(reply[0].(int64)), reply[1].([]byte), reply[2].(redis.Error)
	}
	return int(reply[0].(int64)), reply[1].([]byte), nil
}

func isSet(answers []byte, i int) bool {
	return answers[i/8]&(0x80>>(i%8)) != 0
}

func load(url string, items int) error {
	conn, err := redis.DialURL(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Do("UNLINK", "users"); err != nil {
		return err
	}
	if _, err := conn.Do("BF.RESERVE", "users", 0.01, items); err != nil {
		return err
	}
	added := 0
	var lines []byte // every line ends with \n, so that an empty last item counts; no item may contain \n
	for i := 0; i < items; {
		lines = lines[:0]
		for end := i + batch; i < end && i < items; i++ {
			lines = append(strconv.AppendInt(append(lines, "user:"...), int64(i), 10), '\n')
		}
		_, isNew, err := bulk(conn, "BF.BULKADD", "users", "NOCREATE", "LINES", lines)
		if err != nil {
			return err
		}
		for _, eight := range isNew { // the bits after the last answer are 0
			added += bits.OnesCount8(eight)
		}
	}
	count, found, err := bulk(conn, "BF.BULKEXISTS", "users", "LINES", "user:0\nuser:1\nnobody\n")
	if err != nil {
		return err
	}
	if count != 3 || !isSet(found, 0) || !isSet(found, 1) || added < items/100*98 {
		return fmt.Errorf("%d of %d items were new, and the first are %v", added, items, found)
	}
	fmt.Printf("go: %d of %d items were new\n", added, items)
	return nil
}

func variable(name, otherwise string) string {
	if value, found := os.LookupEnv(name); found {
		return value
	}
	return otherwise
}

func main() {
	items, err := strconv.Atoi(variable("ITEMS", "100000000"))
	if err == nil {
		err = load(variable("REDIS_URL", "redis://127.0.0.1:6379"), items)
	}
	if err != nil {
		log.Fatal(err)
	}
}
