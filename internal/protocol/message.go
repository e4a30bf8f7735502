package protocol

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// ChannelFor is the channel on which the scripts speak to the Client of that id, where the server is one
// node with ordinary channels.
func ChannelFor(client string) string { return "valkeysync:" + client }

// ShardChannelFor is the shard channel for it in a cluster, for all keys of that hash tag, whose slot it shares.
func ShardChannelFor(client, tag string) string { return "valkeysync:" + tag + ":" + client }

// Message is what a script says to a Client, on its channel.
type Message struct {
	Verb    Verb
	Kind    Kind
	Attempt string
	Number  int64         // of the hold that is granted
	Now     int64         // server ms when it was said
	Lease   time.Duration // of the hold that is granted
	Foreign bool          // front: the holder is not one of ours
	Counted bool          // waits: the server counted the Client that is told among those who hear
	Waiting int           // grant: how many wait behind it
	Key     string        // the lock key
}

// Verb is the first word of a message.
type Verb string

// The verbs.
const (
	Grant Verb = "grant" // the attempt holds the lock
	Front Verb = "front" // the attempt is at the front of the queue
	Waits Verb = "waits" // somebody waits for the hold of this attempt
	Lost  Verb = "lost"  // the hold of this attempt was taken by force
	Echo  Verb = "echo"  // an answer to a request for one

	Dropped Verb = "dropped" // the attempt was taken out of the queue: the semaphore's size was changed to Number
)

var errMessage = errors.New("not a message of this protocol")

// ParseMessage reads a message. Anybody who may publish can write one: nothing in it is trusted but an
// attempt's name that nobody else could know.
func ParseMessage(s string) (Message, error) {
	f := strings.SplitN(s, " ", 8)
	if len(f) != 8 {
		return Message{}, errMessage
	}
	number, err1 := strconv.ParseInt(f[3], 10, 64)
	now, err2 := strconv.ParseInt(f[4], 10, 64)
	ms, err3 := strconv.ParseInt(f[5], 10, 32)
	waiting, err4 := strconv.ParseInt(f[6], 10, 32)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || number < 0 || now < 0 || ms < 0 || waiting < 0 {
		return Message{}, errMessage
	}
	m := Message{Verb: Verb(f[0]), Kind: Kind(f[1]), Attempt: f[2], Number: number, Now: now, Waiting: int(waiting), Key: f[7]}
	switch m.Verb {
	case Grant:
		m.Lease = time.Duration(ms) * time.Millisecond
	case Front:
		m.Foreign = ms == 1
	case Waits:
		m.Counted = ms == 1
	case Lost, Dropped, Echo:
	default:
		return Message{}, errMessage
	}
	return m, nil
}
