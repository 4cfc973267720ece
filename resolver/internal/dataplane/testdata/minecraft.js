// Clients and servers of the npm package minecraft-protocol, which play the Java
// edition in any version. Each prints one line of JSON a thing that happens:
//   ping VERSION PORT [NAME]    what the server list would show
//   join VERSION PORT [NAME]    a login, and how it ends
//   serve VERSION PORT [MOTD]   a server, until its standard input ends
// NAME is the host that the player typed, which is not looked up.
'use strict'
const net = require('net')
const minecraft = require('minecraft-protocol')

const [command, version, number, text] = process.argv.slice(2)
const address = { host: '127.0.0.1', port: Number(number), version }
if (text && command !== 'serve') {
  address.host = text
  address.connect = (client) => client.setSocket(net.connect(address.port, '127.0.0.1'))
}
const say = (what) => console.log(JSON.stringify(what))

const commands = {
  ping () {
    minecraft.ping({ ...address, noPongTimeout: 5000 }, (err, answer) => say(err ? { error: String(err) } : answer))
  },
  join () {
    const player = minecraft.createClient({ ...address, username: 'Hazel', auth: 'offline' })
    const ended = (what) => { say(what); process.exit(0) }
    player.once('success', () => ended({ joined: version }))
    player.once('disconnect', (packet) => ended({ reason: packet.reason }))
    player.once('error', (err) => ended({ error: String(err) }))
    player.once('end', () => ended({ error: 'ended' }))
  },
  serve () {
    const server = minecraft.createServer({ ...address, maxPlayers: 7, motd: text || 'A dormouse', 'online-mode': false })
    server.on('listening', () => say({ listening: address.port }))
    process.stdin.on('end', () => process.exit(0)).resume()
  }
}
commands[command]()
