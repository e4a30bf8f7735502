package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/proxy"
)

// pick chooses one of several by a fault's Arg.
func pick[T any](arg int, from ...T) T { return from[arg%len(from)] }

// do lets a fault happen and returns when it is over.
func (w *World) do(f Fault) {
	var undo func()
	switch f.Kind {
	case WorkerKill:
		w.replace(f)
	case WorkerStop:
		if h := w.hand(f.Slot); h != nil {
			h.pause(true)
			undo = func() { h.pause(false) }
		}
	case WorkerClose:
		if h := w.hand(f.Slot); h != nil {
			h.tell(order{Do: "swap"})
		}
	case ServerKill:
		w.restart(f)
	case ServerStop:
		w.frozen(f.Server, true)
		undo = func() { w.frozen(f.Server, false) }
	case NetFade:
		undo = w.fade(&f)
	case NetCut, NetReset, NetHole, NetDelay, NetRefuse, LoseOne:
		undo = w.network(f)
	case FlushAll, DeleteKey, ForceUnlock:
		w.free(f)
	default:
		undo = w.administer(f)
	}
	if undo == nil {
		return
	}
	w.sleep(f.For)
	undo()
}

// replace kills a worker and hires another.
func (w *World) replace(f Fault) {
	w.mu.Lock()
	h := w.hands[f.Slot]
	w.hands[f.Slot] = nil
	w.mu.Unlock()
	if h == nil {
		return // is being replaced
	}
	h.kill()
	w.sleep(f.For)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives[f.Slot]++
	h, err := w.hire(f.Slot, w.lives[f.Slot])
	if err != nil {
		w.record.fault("hire: %v", err)
		return
	}
	w.hands[f.Slot] = h
}

// restart kills a server and starts it again.
func (w *World) restart(f Fault) {
	w.serving.Lock()
	defer w.serving.Unlock()
	from, since := now(), time.Now().UnixMicro()
	w.servers[f.Server].Kill()
	killed := time.Now()
	w.sleep(f.For)
	w.servers[f.Server].Restart()
	if !w.plan.Persist {
		lost := freed{from: from, to: now(), since: since, until: time.Now().UnixMicro(), what: f.Kind}
		if w.plan.Servers > 0 {
			// Nobody need be told, for most holds outlive it; and it had promised nothing to whoever asked afterwards. The
			// number may be another server's, which had an eighth of the lease to answer.
			lost.since, lost.until = 0, min(lost.until, killed.Add(w.plan.longestLease()/8).UnixMicro())
		}
		w.record.free(lost)
	}
}

func (w *World) frozen(i int, on bool) {
	w.serving.Lock()
	defer w.serving.Unlock()
	if w.servers[i].Pid() == 0 {
		return
	}
	if on {
		w.servers[i].Freeze()
	} else {
		w.servers[i].Thaw()
	}
}

// ways are the proxies between a worker and a server; -1: all of them.
func (w *World) ways(slot, server int) (ways []*proxy.Proxy) {
	for i, p := range w.proxies {
		if n := len(w.servers); (slot < 0 || i/n == slot) && (server < 0 || i%n == server) {
			ways = append(ways, p)
		}
	}
	return ways
}

// network lets the proxies of one worker or of all do harm.
func (w *World) network(f Fault) (undo func()) {
	ps := w.ways(f.Slot, f.Server)
	directions := []proxy.Direction{proxy.ToServer, proxy.ToClient, proxy.Both}
	roles := [][]proxy.Role{{proxy.Commands}, {proxy.Messages}, {proxy.Commands, proxy.Messages}}
	d, rs := pick(f.Arg, directions...), pick(f.Arg/4, roles...)
	var undos []func()
	for _, p := range ps {
		switch f.Kind {
		case NetCut:
			for _, r := range rs {
				p.CutRole(r)
			}
		case NetReset:
			p.Reset()
		case NetHole:
			for _, r := range rs {
				p.BlackholeRole(r, d, true)
				undos = append(undos, func() { p.BlackholeRole(r, d, false) })
			}
		case NetDelay:
			by := [2]time.Duration{}
			if d&proxy.ToServer != 0 {
				by[0] = ms(int64(1 + f.Arg/16%400))
			}
			if d&proxy.ToClient != 0 {
				by[1] = ms(int64(1 + f.Arg/32%400))
			}
			for _, r := range rs {
				p.SetDelayRole(r, by[0], by[1])
				undos = append(undos, func() { p.SetDelayRole(r, 0, 0) })
			}
		case NetRefuse:
			p.Refuse(true)
			p.Cut()
			undos = append(undos, func() { p.Refuse(false) })
		case LoseOne:
			w.lose(p, f)
		}
	}
	if len(undos) == 0 {
		return nil
	}
	return func() {
		for _, u := range undos {
			u()
		}
	}
}

// fade has the replies to one worker come later, and then nothing of its commands pass, while messages go
// on arriving or not. What is left of the fault's time is for the second part. Of several servers one stays: it is no
// majority.
func (w *World) fade(f *Fault) (undo func()) {
	ways := w.ways(f.Slot, -1)
	if len(ways) > 1 {
		ways = slices.Delete(ways, f.Server, f.Server+1)
	}
	for _, p := range ways {
		p.SetDelayRole(proxy.Commands, 0, ms(int64(100+f.Arg%350)))
	}
	w.sleep(f.For / 3)
	f.For -= f.For / 3
	for _, p := range ways {
		p.BlackholeRole(proxy.Commands, proxy.Both, true)
		if f.Arg/512%2 == 0 {
			p.BlackholeRole(proxy.Messages, proxy.Both, true)
		}
		p.SetDelayRole(proxy.Commands, 0, 0)
	}
	return func() {
		for _, p := range ways {
			p.BlackholeRole(proxy.Commands, proxy.Both, false)
			p.BlackholeRole(proxy.Messages, proxy.Both, false)
		}
	}
}

// lose waits for one script's call and lets it, or its reply, be lost or late.
func (w *World) lose(p *proxy.Proxy, f Fault) {
	late := proxy.Delay(ms(int64(f.Arg % 2500)))
	rule := p.On("EVALSHA", pick(f.Arg/8, proxy.LoseRequest, proxy.LoseRequestCut, proxy.LoseReply, proxy.LoseReplyCut, late))
	w.faults.Go(func() {
		select {
		case <-rule.Fired():
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lastFault = now()
		case <-w.over:
		}
	})
}

// free takes locks from their holders, by what may do so.
func (w *World) free(f Fault) {
	key := w.plan.Keys[f.Arg%len(w.plan.Keys)].Name
	lost := freed{from: now(), since: time.Now().UnixMicro(), key: key, what: f.Kind}
	switch f.Kind {
	case FlushAll:
		lost.key = ""
		w.admin("FLUSHALL")
	case DeleteKey:
		w.admin("DEL", key)
	case ForceUnlock:
		w.force(key)
	}
	lost.to, lost.until = now(), time.Now().UnixMicro()
	w.record.free(lost)
}

func (w *World) force(key string) {
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{w.server.Addr()}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return // the server is down
	}
	defer c.Close()
	keys, err := protocol.KeysFor("", key)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = (&protocol.Server{Client: c}).Force(ctx, &keys) // done or not: it may have been
}

// administer does what an operator does to the server.
func (w *World) administer(f Fault) (undo func()) {
	switch f.Kind {
	case ClientKill:
		w.admin("CLIENT", "KILL", "TYPE", pick(f.Arg, "normal", "pubsub"), "SKIPME", "yes")
	case ScriptFlush:
		w.admin("SCRIPT", "FLUSH")
	case Notifications:
		w.admin("CONFIG", "SET", "notify-keyspace-events", "")
		return w.notify
	case OutOfMemory:
		w.admin("CONFIG", "SET", "maxmemory", "1")
		return func() { w.admin("CONFIG", "SET", "maxmemory", "0") }
	case Rights:
		rules := pick(f.Arg, []string{"resetchannels"}, []string{"-evalsha", "-eval"}, []string{"resetkeys"},
			[]string{"-publish"}, []string{"-subscribe"}, []string{"off"})
		for slot := range w.plan.Workers {
			if f.Slot < 0 || f.Slot == slot {
				w.admin(append([]string{"ACL", "SETUSER", user(slot)}, rules...)...)
			}
		}
		return w.allow
	default:
		panic(fmt.Sprintf("no such fault: %q", f.Kind))
	}
	return nil
}

func (w *World) notify() {
	if w.plan.Notify {
		w.admin("CONFIG", "SET", "notify-keyspace-events", notifyFlags)
	}
}

func (w *World) allow() {
	for slot := range w.plan.Workers {
		w.admin(append([]string{"ACL", "SETUSER", user(slot)}, allRights...)...)
	}
}

// admin sends a command past the proxies. The server may be down: then the fault does not happen.
func (w *World) admin(args ...string) {
	if w.server.Pid() != 0 {
		_, _ = w.server.Do(args...)
	}
}

// heal undoes everything.
func (w *World) heal() error {
	for i, s := range w.servers {
		w.frozen(i, false)
		if s.Pid() == 0 {
			s.Restart()
		}
	}
	w.notify()
	w.admin("CONFIG", "SET", "maxmemory", "0")
	w.allow()
	for _, p := range w.proxies {
		p.SetDelay(0, 0)
		p.Blackhole(proxy.Both, false)
		p.Refuse(false)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for slot, h := range w.hands {
		if h == nil {
			return fmt.Errorf("no worker in slot %d", slot)
		}
		h.pause(false)
	}
	w.lastFault = max(w.lastFault, now())
	return nil
}
