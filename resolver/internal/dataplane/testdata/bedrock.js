// Clients and servers of the npm package bedrock-protocol on RakNet's own C++. Each
// prints one line of JSON a thing that happens:
//   ping VERSION PORT     what the server list would show
//   join VERSION PORT     a login, and how it ends
//   serve VERSION PORT    a server, until its standard input ends
'use strict'
// RakNet comes compiled for Linux 5, and is looked for by the kernel's version.
require('node:os').release = () => '5'
const bedrock = require('bedrock-protocol')

const [command, version, number] = process.argv.slice(2)
const address = { host: '127.0.0.1', port: Number(number), version, offline: true, conLog: () => {} }
const say = (what) => console.log(JSON.stringify(what))

const commands = {
  ping () {
    bedrock.ping(address).then(say, (err) => say({ error: String(err) })).then(() => process.exit(0))
  },
  join () {
    const player = bedrock.createClient({ ...address, username: 'Hazel', skipPing: true, connectTimeout: 60000 })
    const ended = (what) => { say(what); process.exit(0) }
    player.once('play_status', ({ status }) => ended(status === 'login_success' ? { joined: version } : { reason: status }))
    player.once('kick', (packet) => ended({ reason: packet.message }))
    player.once('error', (err) => ended({ error: String(err) }))
    player.once('close', () => ended({ error: 'closed' }))
  },
  serve () {
    const server = bedrock.createServer({ ...address, maxPlayers: 7, motd: { motd: 'A dormouse', levelName: 'Burrow' } })
    server.on('error', (err) => { say({ error: String(err) }); process.exit(1) })
    say({ listening: address.port })
    process.stdin.on('end', () => process.exit(0)).resume()
  }
}
commands[command]()
