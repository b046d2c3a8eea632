"""The words that the generator writes with: short lists, each word one token of the tokenizer after a space."""


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


WOMEN = words("""
    Ada Adele Alice Amy Anna Astrid Bella Beth Carla Cara Clara Cleo Dana Daisy Diana Dora Edith Ella Elsa Emma Erica Eva Fay
    Fiona Flora Frida Gina Gloria Grace Greta Hana Hannah Hazel Heidi Helen Ida Ines Iris Ivy Jana Jane Joan Julia June Kara
    Karen Kate Kim Laura Lea Lena Lily Lina Lisa Lola Lucy Luna Mara Maria Marta Mary Maya Mia Mina Molly Mona Nadia Nancy
    Nina Nora Olga Olive Paula Petra Rita Rosa Ruth Sara Selma Sofia Stella Susan Tara Tess Tina Uma Vera Viola Wanda Zoe""")
MEN = words("""
    Adam Alan Albert Alex Amir Arne Arthur Ben Bill Bob Boris Bruno Carl Chris Cole Conrad Dan David Dean Dennis Eric Ernst Evan
    Felix Finn Frank Fred Gary George Gil Glen Greg Hans Harry Henry Hugo Ian Igor Ivan Jack Jacob James Jim Joe John Jonas
    Karl Keith Ken Kurt Lars Leo Liam Louis Luke Marco Mark Martin Max Milo Neil Nick Noah Oliver Omar Oscar Otto Owen Paul
    Peter Philip Ralph Ray Rob Roy Sam Simon Steve Sven Ted Theo Thomas Tim Tom Toni Victor Walter Will Yuri""")
NAMES = WOMEN + MEN
ANIMALS = words("""
    ant badger bat bear beaver bee bird bull camel cat cow crab crow deer dog donkey dove duck eagle elk falcon finch fish fox
    frog goat goose hare hawk hen heron horse koala lamb lark lion lynx mole moose mouse newt otter owl ox panda parrot pig
    pony rabbit ram rat raven robin seal shark sheep snail snake spider squid stork swan tiger toad trout turtle wasp whale
    wolf worm wren zebra""")
ADJECTIVES = words("""
    amber ancient bold brave bright broad busy calm careful clever cold cosy curious deep early fast fierce fine free fresh
    gentle glad golden grand great hungry jolly kind late lazy light little lonely loud lucky merry mild modest neat noble old
    plain polite proud quick quiet rare round sad shy silent simple sleepy slow small smart soft still strong sweet tall tame
    thin tiny tired warm wide wild wise young""")
COLOURS = words("""
    amber black blue brown copper cream crimson golden green grey indigo ivory lilac maroon olive orange pink purple red rose
    ruby scarlet silver tan teal violet white yellow""")
CITIES = words("""
    Athens Berlin Bern Bonn Boston Bremen Cairo Chicago Cork Dallas Delhi Denver Dublin Geneva Genoa Ghent Hamburg Hanoi Kiev
    Kyoto Lagos Leeds Leipzig Lima Lisbon London Lyon Madrid Miami Milan Munich Nairobi Naples Nice Oslo Oxford Paris Porto
    Prague Quito Riga Rome Seoul Sofia Split Sydney Tokyo Trier Tunis Turin Venice Vienna Warsaw York Zagreb Zurich""")
THINGS = words("""
    apple bag ball basket bell bench boat book bottle bowl box bread brush bucket button cake candle card carpet chair clock
    cloud coat coin comb cup desk door drum egg fan feather flag flower flute fork garden glass glove hammer hat jar jug key
    kite knife ladder lamp leaf lemon letter map mirror nail needle nut onion paint pan paper pear pen pencil piano picture
    pillow plate plum pot purse radio ring rope ruler shell ship shirt shoe shovel sock soap spoon stamp star stone string
    table tent ticket towel tower toy train tree violin wagon wall watch wheel whistle window wool""")
COUNTABLE = words("apple ball book bottle button candle card chair coin cup egg flower key lamp letter nut pear pen plate plum ring stamp stone toy")
PLACES = words("""
    forest river garden market village castle lake mountain beach school library harbour meadow bridge field island kitchen
    museum park station valley farm tower cave""")
JOBS = words("""
    baker doctor farmer teacher painter sailor singer writer gardener cook judge pilot miller tailor nurse driver hunter potter
    smith guard clerk weaver""")
PLAIN_WORDS = tuple(sorted(set(ANIMALS + ADJECTIVES + COLOURS + THINGS + PLACES + JOBS)))
