package proxy

import (
	"bytes"
	"strconv"
)

// splitter finds the ends of commands in what a client sends: RESP arrays of
// bulk strings, and inline commands, which are lines. What is neither is passed
// on as it comes, then and for ever after: the server will refuse it, and the
// proxy is not the one to judge.
type splitter struct {
	rest   []byte // the beginning of a command whose end has not come yet
	opaque bool
}

// feed returns the commands that end in chunk, each with all of its bytes.
func (s *splitter) feed(chunk []byte) [][]byte {
	if s.opaque {
		return [][]byte{chunk}
	}
	s.rest = append(s.rest, chunk...) // nobody else has what is in rest
	buf := s.rest
	var cmds [][]byte
	for len(buf) > 0 {
		n, ok := commandLen(buf)
		if !ok {
			s.opaque, s.rest = true, nil
			return append(cmds, buf)
		}
		if n == 0 {
			break
		}
		cmds = append(cmds, buf[:n:n])
		buf = buf[n:]
	}
	if len(cmds) > 0 {
		s.rest = bytes.Clone(buf) // what was before it is the commands'
	}
	return cmds
}

// commandLen returns how long the command at the beginning of buf is, 0 while
// its end is missing; false says that it is none.
func commandLen(buf []byte) (n int, ok bool) {
	if buf[0] != '*' {
		return bytes.IndexByte(buf, '\n') + 1, true
	}
	elems, n, ok := header(buf, '*')
	if !ok || n == 0 {
		return 0, ok
	}
	for range elems {
		if n == len(buf) {
			return 0, true
		}
		size, h, ok := header(buf[n:], '$')
		if !ok || h == 0 {
			return 0, ok
		}
		end := n + h + size
		if len(buf) < end+2 {
			return 0, true
		}
		if buf[end] != '\r' || buf[end+1] != '\n' {
			return 0, false
		}
		n = end + 2
	}
	return n, true
}

// header reads a line like "*3\r\n" and returns its number and length, length 0
// while its end is missing; false says that it is none.
func header(buf []byte, kind byte) (value, n int, ok bool) {
	const longest = 16 // of the digits that anything real has, with room
	if buf[0] != kind {
		return 0, 0, false
	}
	end := bytes.IndexByte(buf, '\n')
	if end < 0 {
		return 0, 0, len(buf) <= longest
	}
	value, err := strconv.Atoi(string(bytes.TrimSuffix(buf[1:end], []byte("\r"))))
	if err != nil || value < 0 || end > longest {
		return 0, 0, false
	}
	return value, end + 1, true
}

// name returns a command's name, in upper case, or nothing where cmd is none.
func name(cmd []byte) string {
	if len(cmd) == 0 || cmd[0] != '*' {
		word, _, _ := bytes.Cut(bytes.TrimSpace(cmd), []byte(" "))
		return string(bytes.ToUpper(word))
	}
	// "*n\r\n$n\r\nNAME\r\n…"
	lines := bytes.SplitN(cmd, []byte("\r\n"), 4)
	if len(lines) < 4 {
		return ""
	}
	return string(bytes.ToUpper(lines[2]))
}

// subscribes says whether a command makes its connection one for messages.
func subscribes(cmd []byte) bool {
	switch name(cmd) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		return true
	}
	return false
}
