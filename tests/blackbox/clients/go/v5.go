package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sort"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

type client5 struct {
	*paho.Client
	t        *test
	conn     net.Conn
	connack  *paho.Connack
	messages chan *paho.Publish
	bye      chan *paho.Disconnect
}

type connecting struct {
	packet *paho.Connect
	manual bool
}

// timeout is a context that ends at the deadline or with the test.
func (t *test) timeout() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.after(cancel)
	return ctx
}

func try5(t *test, address, suffix string, change func(*connecting)) (*client5, error) {
	conn, err := net.DialTimeout("tcp", address, deadline)
	must(err)
	c := &client5{t: t, conn: packets.NewThreadSafeConn(conn), messages: make(chan *paho.Publish, 10000), bye: make(chan *paho.Disconnect, 1)}
	how := connecting{packet: &paho.Connect{ClientID: t.name + suffix, KeepAlive: 30, CleanStart: true, Properties: &paho.ConnectProperties{}}}
	if change != nil {
		change(&how)
	}
	c.Client = paho.NewClient(paho.ClientConfig{
		Conn:                       c.conn,
		PacketTimeout:              deadline,
		EnableManualAcknowledgment: how.manual,
		SendAcksInterval:           time.Millisecond,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(r paho.PublishReceived) (bool, error) {
			c.messages <- r.Packet
			return true, nil
		}},
		OnServerDisconnect: func(d *paho.Disconnect) { c.bye <- d },
		OnClientError:      func(error) {},
	})
	c.connack, err = c.Connect(t.timeout(), how.packet)
	t.after(func() { conn.Close() })
	return c, err
}

func connect5(t *test, address, suffix string, change func(*connecting)) *client5 {
	c, err := try5(t, address, suffix, change)
	must(err)
	return c
}

func (c *client5) subscribe(id int, options ...paho.SubscribeOptions) []byte {
	s := &paho.Subscribe{Subscriptions: options}
	if id > 0 {
		s.Properties = &paho.SubscribeProperties{SubscriptionIdentifier: &id}
	}
	got, err := c.Subscribe(c.t.timeout(), s)
	must(err)
	return got.Reasons
}

func (c *client5) publish(topic string, qos byte, payload string, change ...func(*paho.Publish)) {
	p := &paho.Publish{Topic: topic, QoS: qos, Payload: []byte(payload), Properties: &paho.PublishProperties{}}
	for _, f := range change {
		f(p)
	}
	_, err := c.Publish(c.t.timeout(), p)
	must(err)
}

func (c *client5) message() *paho.Publish { return receive(c.messages, "message") }

func (c *client5) until(payload string) (seen []string) {
	for {
		got := string(c.message().Payload)
		if got == payload {
			return seen
		}
		seen = append(seen, got)
	}
}

func (c *client5) leave() { must(c.Disconnect(&paho.Disconnect{})) }

func retained(p *paho.Publish) { p.Retain = true }

func keep(seconds uint32) func(*connecting) {
	return func(how *connecting) {
		how.packet.CleanStart = false
		how.packet.Properties.SessionExpiryInterval = &seconds
	}
}

func v5Features(address string) (all []feature) {
	add := func(name string, run func(*test)) { all = append(all, feature{name + ", 5.0", run}) }
	connect := func(t *test, suffix string, change func(*connecting)) *client5 {
		return connect5(t, address, suffix, change)
	}

	add("connect", func(t *test) { check(!connect(t, "", nil).connack.SessionPresent, "session present") })

	for qos := byte(0); qos < 3; qos++ {
		add(fmt.Sprintf("QoS %d both ways", qos), func(t *test) {
			c := connect(t, "", nil)
			c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: qos})
			c.publish(t.name, qos, "x")
			got := c.message()
			check(string(got.Payload) == "x" && got.QoS == qos && !got.Retain && got.Topic == t.name, "%v", got)
		})
		add(fmt.Sprintf("order of 300 messages at QoS %d", qos), func(t *test) {
			c, p := connect(t, "s", nil), connect(t, "p", nil)
			c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: qos})
			for n := range 300 {
				p.publish(t.name, qos, fmt.Sprint(n))
			}
			for n := range 300 {
				got := string(c.message().Payload)
				check(got == fmt.Sprint(n), "%s in place of %d", got, n)
			}
		})
	}

	add("session present, queue of an offline session", func(t *test) {
		c := connect(t, "", keep(60))
		check(!c.connack.SessionPresent, "session present")
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		c.leave()
		p := connect(t, "p", nil)
		for n := range 3 {
			p.publish(t.name, 1, fmt.Sprint(n))
		}
		c = connect(t, "", keep(60))
		check(c.connack.SessionPresent, "no session present")
		for n := range 3 {
			check(string(c.message().Payload) == fmt.Sprint(n), "order of the queue")
		}
		c.leave()
		check(!connect(t, "", nil).connack.SessionPresent, "session present after a clean start")
	})

	add("session expiry", func(t *test) {
		connect(t, "", keep(1)).leave()
		time.Sleep(4 * time.Second)
		check(!connect(t, "", keep(1)).connack.SessionPresent, "session present")
	})

	add("retained messages, retain handling, retain as published", func(t *test) {
		c := connect(t, "", nil)
		c.publish(t.name, 1, "kept", retained)
		sent := func(o paho.SubscribeOptions) int {
			o.Topic, o.QoS = t.name, 1
			c.subscribe(0, o)
			c.publish(t.name, 1, "end")
			return len(c.until("end"))
		}
		check(sent(paho.SubscribeOptions{RetainHandling: 2}) == 0, "retain handling 2")
		check(sent(paho.SubscribeOptions{RetainHandling: 1}) == 0, "retain handling 1")
		check(sent(paho.SubscribeOptions{RetainHandling: 0}) == 1, "retain handling 0")
		check(sent(paho.SubscribeOptions{RetainHandling: 2, RetainAsPublished: true}) == 0, "retain handling 2")
		c.publish(t.name, 1, "flagged", retained)
		check(c.message().Retain, "retain as published")
	})

	add("will delay, cancelled by reconnecting", func(t *test) {
		w := connect(t, "w", nil)
		w.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		four := uint32(4)
		will := func(how *connecting) {
			keep(60)(how)
			how.packet.WillMessage = &paho.WillMessage{Topic: t.name, QoS: 1, Payload: []byte("bye")}
			how.packet.WillProperties = &paho.WillProperties{WillDelayInterval: &four}
		}
		start := time.Now()
		connect(t, "1", will).conn.Close()
		got := w.message()
		check(string(got.Payload) == "bye" && time.Since(start) > 3900*time.Millisecond, "%v", got)
		connect(t, "2", will).conn.Close()
		back := connect(t, "2", keep(60))
		time.Sleep(4400 * time.Millisecond)
		back.publish(t.name, 1, "end")
		check(len(w.until("end")) == 0, "the will came in spite of the reconnection")
	})

	add("takeover (0x8E)", func(t *test) {
		c := connect(t, "", nil)
		connect(t, "", nil)
		check(receive(c.bye, "DISCONNECT").ReasonCode == 0x8E, "another reason code")
	})

	add("topic aliases, inbound", func(t *test) {
		c := connect(t, "", nil)
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		alias := uint16(7)
		with := func(p *paho.Publish) { p.Properties.TopicAlias = &alias }
		c.publish(t.name, 1, "1", with)
		c.publish("", 1, "2", with)
		for _, payload := range []string{"1", "2"} {
			got := c.message()
			check(got.Topic == t.name && string(got.Payload) == payload, "%v", got)
		}
	})

	add("topic aliases, outbound", func(t *test) {
		c := connect(t, "", func(how *connecting) { how.packet.Properties.TopicAliasMaximum = paho.Uint16(3) })
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		topics := map[uint16]string{}
		for n := range 5 {
			c.publish(t.name, 1, fmt.Sprint(n))
			got := c.message()
			if alias := got.Properties.TopicAlias; alias != nil {
				check(*alias >= 1 && *alias <= 3, "alias %d", *alias)
				if got.Topic != "" {
					topics[*alias] = got.Topic
				}
				check(topics[*alias] == t.name, "alias %d is unknown", *alias)
			}
		}
	})

	add("subscription identifiers", func(t *test) {
		c := connect(t, "", nil)
		c.subscribe(5, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		c.publish(t.name, 1, "x")
		got := c.message()
		check(got.Properties.SubscriptionIdentifier != nil && *got.Properties.SubscriptionIdentifier == 5, "%v", got)
	})

	add("no local", func(t *test) {
		c, other := connect(t, "", nil), connect(t, "o", nil)
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1, NoLocal: true})
		c.publish(t.name, 1, "own")
		other.publish(t.name, 1, "other")
		check(string(c.message().Payload) == "other", "its own message came back")
	})

	add("message expiry, remaining interval", func(t *test) {
		c := connect(t, "", keep(60))
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		c.leave()
		p := connect(t, "p", nil)
		expires := func(seconds uint32) func(*paho.Publish) {
			return func(p *paho.Publish) { p.Properties.MessageExpiry = &seconds }
		}
		p.publish(t.name, 1, "dies", expires(1))
		p.publish(t.name, 1, "lives", expires(100))
		time.Sleep(1500 * time.Millisecond)
		got := connect(t, "", keep(60)).message()
		left := *got.Properties.MessageExpiry
		check(string(got.Payload) == "lives" && left > 0 && left <= 99, "%v", got)
	})

	add("request and response, user properties in order, content type", func(t *test) {
		asker, answerer := connect(t, "q", nil), connect(t, "r", nil)
		answerer.subscribe(0, paho.SubscribeOptions{Topic: t.name + "/do", QoS: 1})
		asker.subscribe(0, paho.SubscribeOptions{Topic: t.name + "/reply", QoS: 1})
		users := paho.UserProperties{{Key: "z", Value: "1"}, {Key: "a", Value: "2"}, {Key: "z", Value: "1"}}
		asker.publish(t.name+"/do", 1, "2+2", func(p *paho.Publish) {
			p.Properties.ResponseTopic, p.Properties.CorrelationData = t.name+"/reply", []byte{0, 7}
			p.Properties.User, p.Properties.ContentType = users, "text/plain"
		})
		got := answerer.message()
		check(fmt.Sprint(got.Properties.User) == fmt.Sprint(users) && got.Properties.ContentType == "text/plain", "%v", got)
		answerer.publish(got.Properties.ResponseTopic, 1, "4", func(p *paho.Publish) {
			p.Properties.CorrelationData = got.Properties.CorrelationData
		})
		got = asker.message()
		check(string(got.Payload) == "4" && bytes.Equal(got.Properties.CorrelationData, []byte{0, 7}), "%v", got)
	})

	add("assigned client identifier", func(t *test) {
		c := connect(t, "", func(how *connecting) { how.packet.ClientID = "" })
		check(c.connack.Properties.AssignedClientID != "", "none")
	})

	add("maximum packet size", func(t *test) {
		c := connect(t, "", func(how *connecting) { how.packet.Properties.MaximumPacketSize = paho.Uint32(200) })
		other := connect(t, "o", nil)
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		other.publish(t.name, 1, string(make([]byte, 500)))
		other.publish(t.name, 1, "small")
		check(string(c.message().Payload) == "small", "the large one came")
	})

	add("receive maximum", func(t *test) {
		c := connect(t, "", func(how *connecting) {
			how.packet.Properties.ReceiveMaximum = paho.Uint16(2)
			how.manual = true
		})
		other := connect(t, "o", nil)
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1})
		for n := range 10 {
			other.publish(t.name, 1, fmt.Sprint(n))
		}
		for n := range 10 {
			got := c.message()
			check(string(got.Payload) == fmt.Sprint(n) && len(c.messages) <= 1, "%s, and %d more unacknowledged", got.Payload, len(c.messages))
			must(c.Ack(got))
		}
	})

	add("shared subscriptions", func(t *test) {
		one, two, p := connect(t, "1", nil), connect(t, "2", nil), connect(t, "p", nil)
		for _, member := range []*client5{one, two} {
			member.subscribe(0, paho.SubscribeOptions{Topic: "$share/g/" + t.name, QoS: 1})
		}
		for n := range 20 {
			p.publish(t.name, 1, fmt.Sprintf("%02d", n))
		}
		var seen []string
		for len(seen) < 20 {
			select {
			case got := <-one.messages:
				seen = append(seen, string(got.Payload))
			case got := <-two.messages:
				seen = append(seen, string(got.Payload))
			case <-time.After(deadline):
				panic(fmt.Sprintf("%d of 20 messages", len(seen)))
			}
		}
		sort.Strings(seen)
		for n, payload := range seen {
			check(payload == fmt.Sprintf("%02d", n), "%v", seen)
		}
	})

	add("unsubscribe, reason codes", func(t *test) {
		c := connect(t, "", nil)
		c.subscribe(0, paho.SubscribeOptions{Topic: t.name, QoS: 1}, paho.SubscribeOptions{Topic: t.name + "/end", QoS: 1})
		got, err := c.Unsubscribe(t.timeout(), &paho.Unsubscribe{Topics: []string{t.name, t.name + "/none"}})
		must(err)
		check(bytes.Equal(got.Reasons, []byte{0x00, 0x11}), "%v", got.Reasons)
		c.publish(t.name, 1, "x")
		c.publish(t.name+"/end", 1, "end")
		check(len(c.until("end")) == 0, "still subscribed")
	})

	add("refused: enhanced authentication (0x8C)", func(t *test) {
		c, err := try5(t, address, "", func(how *connecting) { how.packet.Properties.AuthMethod = "x" })
		check(err != nil && c.connack != nil && c.connack.ReasonCode == 0x8C, "%v %v", c.connack, err)
	})

	add("$SYS topics", func(t *test) {
		c := connect(t, "", nil)
		c.subscribe(0, paho.SubscribeOptions{Topic: "$SYS/broker/version"})
		check(c.message().Retain, "not retained")
	})

	return all
}
