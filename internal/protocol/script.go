// Package protocol is what valkeysync says to the server: keys, scripts, messages. It knows nothing of
// goroutines, and every state it speaks of lives on the server.
//
// docs/protocol.md has the reasons.
package protocol

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
)

//go:embed scripts/*.lua
var files embed.FS

// script is one of scripts/*.lua with what stands before it. args names its arguments, in order, as its
// header does; the last may be left out where the header says so.
type script struct {
	name string
	libs []string
	args []string
	text string
	lua  [2]*valkey.Lua // for one server, and for a cluster
}

// speaking is what a script begins with: it speaks on ordinary channels, or on shard channels with the hash tag of its
// keys.
var speaking = [2]string{"local tag = ''\n", "local tag = string.match(KEYS[2], '{[^}]+}')\n"}

func newScript(name string, libs []string, args ...string) *script {
	s := &script{name: name, libs: libs, args: args}
	s.text = s.source()
	for i := range s.lua {
		s.lua[i] = valkey.NewLuaScript(s.sent(i == 1))
	}
	return s
}

// sent is the script as it is sent.
func (s *script) sent(cluster bool) string {
	if cluster {
		return speaking[1] + s.text
	}
	return speaking[0] + s.text
}

func (s *script) source() string {
	var source []byte
	for _, name := range append(append([]string{}, s.libs...), s.name) {
		b, err := files.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // the file is part of the program
		}
		source = append(source, b...)
	}
	return string(source)
}

// What most acquisitions and releases find stands in front of the rest, so that they pay for nothing else:
// defining the rest's functions takes the server longer than the commands that they need.
var (
	alone    = []string{"keys", "clock", "number", "write", "prelude"}
	granting = []string{"keys", "clock", "number", "write", "prelude", "grant"}

	acquireScript = newScript("acquire", []string{"keys", "clock", "number", "acquire_free", "write", "acquire_alone", "prelude", "grant"}, "entry", "latest", "lease", "how")
	releaseScript = newScript("release", []string{"keys", "release_last", "clock", "number", "write", "prelude", "grant"}, "hold", "entry", "latest", "how")
	leaveScript   = newScript("leave", granting, "ref", "entry", "kind", "heard")
	checkScript   = newScript("check", granting, "entry", "echo", "heard")
	renewScript   = newScript("renew", alone, "hold", "lease", "echo")
	statusScript  = newScript("status", alone, "most")
	resizeScript  = newScript("resize", granting, "kind")
	forceScript   = newScript("force", granting, "seen")
	allScript     = newScript("acquire_all", []string{"keys", "clock", "number"}, "entries", "latest")

	scripts = []*script{acquireScript, allScript, releaseScript, leaveScript, checkScript, renewScript, statusScript, resizeScript, forceScript, quorumTakeScript, quorumKeepScript, quorumDropScript}
)

// run sends the script. Errors keep the server's own in their chain.
func (s *script) run(ctx context.Context, v *Server, k *Keys, args ...string) (valkey.ValkeyMessage, error) {
	return s.runOn(ctx, v, k, k.list[:], args...)
}

// runOn is run for a script on the keys of more than one lock; k is the first.
func (s *script) runOn(ctx context.Context, v *Server, k *Keys, keys []string, args ...string) (valkey.ValkeyMessage, error) {
	if len(args) > len(s.args) {
		panic(fmt.Sprintf("valkeysync: script %s takes %v, got %d arguments", s.name, s.args, len(args)))
	}
	lua, c := s.lua[0], v.Client
	if v.Cluster {
		lua = s.lua[1]
	}
	reply, err := lua.Exec(ctx, c, keys, args).ToMessage()
	if errors.Is(err, valkey.ErrClosing) && errors.Is(c.Do(ctx, c.B().Ping().Build()).Error(), valkey.ErrClosing) {
		// Asked twice, for a client of Sentinel says so of a connection that it is just replacing.
		err = fault.Errorf("%w: its valkey.Client was closed before it: %w", ErrClosed, err)
	}
	return reply, s.wrap(k, err)
}

// wrap says of an error what was asked.
func (s *script) wrap(k *Keys, err error) error {
	if err == nil {
		return nil
	}
	return fault.Errorf("%s %q: %w%s", s.name, k.Lock, err, remedy(k, err))
}

// ErrClosed is why nothing can be asked any more.
var ErrClosed = fault.New("client closed")

var errReply = errors.New("the reply is not one of this protocol; is another version of valkeysync in use on this server?")

// Sources is the text of every script as it is sent to a server that is no cluster, by name: what SCRIPT LOAD takes
// and EVALSHA's digest is made of.
func Sources() map[string]string {
	all := make(map[string]string, len(scripts))
	for _, s := range scripts {
		all[s.name] = s.sent(false)
	}
	return all
}
