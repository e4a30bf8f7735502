package protocol

import (
	"strings"

	"github.com/valkeysync/valkeysync/internal/fault"
)

// ErrInvalidKey is why KeysFor refused a key.
var ErrInvalidKey = fault.New("invalid key")

// Keys are the four keys of one primitive. They share a slot.
type Keys struct {
	Lock string // the plain recipe's key

	list [4]string // in the order of the scripts' KEYS
	tag  string    // the hash tag that all four share, braces included
}

// KeysFor builds the keys of a primitive. The helpers take the key's own hash tag where it has one, and
// make the key their tag where it has none. A key without a tag of its own that contains '}' could not
// be a tag, so it is refused, and so is one that is empty or blank.
func KeysFor(prefix, key string) (Keys, error) {
	if strings.TrimSpace(key) == "" {
		return Keys{}, fault.Errorf("%w %q: empty or blank; name what is locked", ErrInvalidKey, key)
	}
	name := prefix + key
	base, tag := name, hashTag(name)
	if tag == "" {
		if strings.Contains(name, "}") {
			return Keys{}, fault.Errorf("%w %q: it contains '}' but no {hash tag}, so its helper keys cannot share its slot; remove the '}' or put a non-empty part of the key in braces", ErrInvalidKey, name)
		}
		base = "{" + name + "}"
		tag = base
	}
	all := base + ":shared" + base + ":queue" + base + ":fence" // one piece of memory: there may be many keys
	shared, queue := len(base)+len(":shared"), len(base)+len(":queue")
	return Keys{
		Lock: name,
		list: [4]string{name, all[:shared], all[shared : shared+queue], all[shared+queue:]},
		tag:  all[strings.Index(base, tag):][:len(tag)],
	}, nil
}

// hashTag is the part of key that a cluster hashes, with its braces; "" where it hashes all of it.
func hashTag(key string) string {
	open := strings.IndexByte(key, '{')
	if open < 0 {
		return ""
	}
	n := strings.IndexByte(key[open+1:], '}')
	if n < 1 {
		return ""
	}
	return key[open : open+n+2]
}

// Queue is the key of those who wait.
func (k *Keys) Queue() string { return k.list[2] }
