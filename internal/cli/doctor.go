package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/valkeysync/valkeysync/internal/dial"
	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/words"
)

const doctorUsage = `Usage: valkeysync doctor

Tries what valkeysync needs of the server, as this user: connect, write, run a script, publish, subscribe, count
who listens, take a lock and give it back. Says which server it is, whether keyspace notifications arrive, whether
it may evict locks, and how the clocks differ; and what to do about each. It leaves nothing behind.
` + serverUsage + `
Exit status: 0 it can be used (there may be warnings); 1 something is broken; 2 wrong usage.
`

// verdict is how a check ended.
type verdict string

const (
	good   verdict = "ok"
	warned verdict = "warn"
	broken verdict = "FAIL"
	dark   verdict = "?" // it may not be asked
)

// finding is what one check found.
type finding struct {
	verdict verdict
	name    string
	text    string
	remedy  string
}

func doctorCommand(w World, args []string) int {
	f := flagSet("doctor")
	s := serverFlags(w, f)
	err := parseNone(f, args)
	if err == nil {
		_, err = s.options()
	}
	if err != nil {
		return w.wrongArgs("doctor", doctorUsage, err, cannotRun)
	}
	count := map[verdict]int{}
	examine(w, s, func(f finding) {
		count[f.verdict]++
		fmt.Fprintf(w.Out, "%-5s %-14s %s\n", f.verdict, f.name, f.text)
		if f.remedy != "" {
			fmt.Fprintf(w.Out, "%-20s → %s\n", "", strings.ReplaceAll(f.remedy, "\n", fmt.Sprintf("\n%-22s ", "")))
		}
	})
	switch {
	case count[broken] > 0:
		fmt.Fprintf(w.Out, "\n%s cannot be used like that.\n", dial.Shown(s.url))
		return negative
	case count[warned] > 0:
		fmt.Fprintf(w.Out, "\n%s can be used; %s above.\n", dial.Shown(s.url), words.Plural(int64(count[warned]), "thing is better changed, see", "things are better changed, see"))
	default:
		fmt.Fprintf(w.Out, "\n%s can be used, and all is well.\n", dial.Shown(s.url))
	}
	return fine
}

// connectRemedy says what to do when there is no connection.
func connectRemedy(err error) string {
	text := err.Error()
	for _, c := range []struct{ is, do string }{
		{"WRONGPASS", "the user or the password is wrong: valkey://user:password@host:6379"},
		{"NOAUTH", "the server wants a password: valkey://:password@host:6379, or user:password@"},
		{"NOPERM", "this user may not even say hello: see the README, section ACL"},
		{"connection refused", "nothing listens there: is the server running, is the port right, does it listen on this address (bind)?"},
		{"no such host", "the name is not known here: is it spelled right?"},
		{"i/o timeout", "nobody answers: a firewall or a security group, or a wrong address"},
		{"deadline exceeded", "nobody answers: a firewall or a security group, a wrong address, or TLS on one side only"},
		{"first record does not look like a TLS", "the server speaks no TLS on this port: valkey:// instead of valkeys://"},
		{"certificate", "the server's certificate is not trusted: -cacert FILE has the one that it is signed with"},
		{"EOF", "the server closed the connection at once: it may want TLS (valkeys://), or have too many clients"},
		{"connection reset", "the server closed the connection at once: it may want TLS (valkeys://), or have too many clients"},
		{"max number of clients", "the server has all the connections that it allows: see its maxclients"},
		{"master_set", "is that the name under which the sentinels know the primary?"},
	} {
		if strings.Contains(text, c.is) {
			return c.do
		}
	}
	return "is the server running, and is the address right?"
}

// rightRemedy says what to do about a command that was refused.
func rightRemedy(err error, right string) string {
	switch text := err.Error(); {
	case errors.Is(err, errUncounted):
		return "a proxy stands before the server: connect to the server itself, without it locks are lost"
	case !protocol.Denied(err):
	case strings.Contains(text, "access") && strings.Contains(text, " key"):
		return "this user may not use keys of that name: say -prefix P (as WithPrefix does) where it may use others,\n" +
			"or give it the right to ~valkeysync:probe:* and ~{valkeysync:probe:*"
	default:
		return "give this user the right: ACL SETUSER … " + right + " (the README, section ACL, has all that is needed)"
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "READONLY"):
		return "this is a replica: connect to the primary"
	case strings.Contains(text, "OOM"):
		return "the server is out of memory: raise maxmemory, or delete something"
	case strings.Contains(text, "unknown command"):
		return "the server has no such command, or it was renamed: valkeysync needs it"
	case strings.Contains(text, "MISCONF"):
		return "the server cannot write its data to disk and refuses writes: see its log"
	case strings.Contains(text, "CLUSTERDOWN"):
		return "the cluster is not whole: CLUSTER INFO says why"
	}
	return ""
}
